"""The checks of `evervec doctor`: what works, what does not, and how to fix it."""

from __future__ import annotations

import platform
import shutil
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from evervec.cli.app import Where
from evervec.cli.output import embedder_advice, resume_command
from evervec.errors import EvervecError, SettingsError, VersionMismatch
from evervec.model.phrases import duration
from evervec.runtime.packages import install_command

if TYPE_CHECKING:
    from evervec.facade import Evervec

_LITTLE_SPACE = 1 << 30


@dataclass(frozen=True)
class Finding:
    """The result of one check; `state` is ok, warn or bad."""

    what: str
    state: str
    finding: str
    fix: str = ""


def examine(where: Where) -> list[Finding]:
    """Run all checks; a failing one does not stop the others."""
    python = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    findings = [Finding("python", "ok", python)]
    try:
        with where.opened() as ev:
            for check in (_store, _disk, _model, _index, _tables, _queue, _alerts, _clock):
                try:
                    findings += check(ev)
                except EvervecError as error:
                    findings.append(Finding(check.__name__.strip("_"), "bad", str(error)))
    except VersionMismatch as error:
        fix = "open the store with the model that made its vectors"
        findings.append(Finding("versions", "bad", str(error), fix))
    except SettingsError as error:
        findings.append(Finding("settings", "bad", str(error)))
    except EvervecError as error:
        findings.append(Finding("store", "bad", str(error)))
    return findings


def _store(ev: Evervec) -> Iterator[Finding]:
    url, path = ev.store.url, Path(ev.store.url)
    in_file = "://" not in url
    if in_file and not path.exists():
        yield Finding("store", "ok", f"{url}, in memory: lost when the process ends")
    elif trouble := ev.store.check():
        fix = "restore it from a backup, or add the records to a new store" if in_file else ""
        yield Finding("store", "bad", f"{url} is damaged: {trouble}" if in_file else trouble, fix)
    else:
        size = f", {path.stat().st_size / 1e6:.1f} MB" if in_file else ""
        yield Finding("store", "ok", f"{url}{size}, sound")


def _disk(ev: Evervec) -> Iterator[Finding]:
    if "://" in ev.store.url:  # a database server's disk cannot be checked from here
        return
    path = Path(ev.store.url)
    free = shutil.disk_usage(path.resolve().parent if path.exists() else Path.cwd()).free
    state = "ok" if free > _LITTLE_SPACE else "warn"
    fix = "" if state == "ok" else "free some space: a full disk stops all writes"
    yield Finding("disk", state, f"{free / 1e9:.1f} GB free", fix)


def _model(ev: Evervec) -> Iterator[Finding]:
    if ev.embedder.dimensions == 0:
        yield Finding(
            "model", "warn",
            f"no embedder: records wait, searches use text only ({ev.embedder_because})",
            embedder_advice(ev, f"{install_command('evervec[local]')}, start Ollama, or set OPENAI_API_KEY"),
        )  # fmt: skip
        return
    began = time.perf_counter()
    trouble = ev.provider.trouble()
    took = duration(time.perf_counter() - began)
    name = f"{ev.embedder.name} {ev.embedder.model}, {ev.embedder.dimensions} dimensions"
    if trouble is None:
        why = f", because {ev.embedder_because}" if ev.embedder_because else ""
        yield Finding(
            "model", "ok", f"{name}{why}; embedding a text took {took}, including loading"
        )
    else:
        fix = "check that it is running and reachable; records wait for it"
        yield Finding("model", "bad", f"{name}: {trouble}", fix)


def _index(ev: Evervec) -> Iterator[Finding]:
    report = ev.verify(quick=True)
    if report.faults:
        wrong = ", ".join(f"{count} {name}" for name, count in report.faults.items())
        yield Finding("index", "bad", wrong, "evervec verify --repair")
    else:
        waiting = f"; {report.waiting} wait for a worker" if report.waiting else ""
        text = f"agrees with the ledger of {report.checked} records{waiting}"
        yield Finding("index", "ok", text)
    for version in ev.versions(all_tenants=True):
        name = version.name or "no model yet"
        text = f"{version.kind}: {name}, {version.items} records, {version.state}"
        yield Finding("version", "ok", text)


def _tables(ev: Evervec) -> Iterator[Finding]:
    for table in ev.tables():
        if table.trouble:
            yield Finding("table", "bad", table.trouble)
        else:
            yield Finding("table", "ok", f"{table.table} is attached as {table.kind}")


def _queue(ev: Evervec) -> Iterator[Finding]:
    stats = ev.queue.stats()
    if stats.paused:
        text = "paused: workers claim none of its jobs"
        yield Finding("queue", "warn", text, resume_command(stats))
    if stats.failed:
        fix = "evervec jobs --status failed; then evervec retry --all"
        yield Finding("queue", "warn", f"{stats.failed} dead letters", fix)
    oldest = stats.oldest_pending_seconds or 0
    if stats.pending and oldest > 60 and not stats.processing:
        text = f"{stats.pending} waiting, oldest for {duration(oldest)}, and no worker is running"
        yield Finding("queue", "warn", text, "evervec worker")
    elif not stats.failed and not stats.paused:
        yield Finding("queue", "ok", f"{stats.pending} waiting, {stats.processing} running")


def _alerts(ev: Evervec) -> Iterator[Finding]:
    """Alerts of the last housekeeping, and long transactions that the store has now."""
    lasting = {alert.name: alert.text for alert in ev.alerts()}
    if limit := ev.settings.alert_transaction_seconds:
        lasting.update(("transaction", text) for text in ev.store.troubles(limit))
    for text in lasting.values():
        yield Finding("alert", "warn", text)


def _clock(ev: Evervec) -> Iterator[Finding]:
    last = ev.queue.stats().last_processed_at
    ahead = (last - datetime.now(UTC)).total_seconds() if last else 0.0
    if ahead > 5:
        text = f"the store's last write is {duration(ahead)} ahead of this machine's clock"
        yield Finding("clock", "bad", text, "synchronize the clocks of all machines with NTP")
    else:
        yield Finding("clock", "ok", datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"))
