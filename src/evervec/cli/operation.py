"""Commands for operation: init, status, worker, doctor, demo."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from evervec.cli.app import Where, command
from evervec.cli.output import (
    ago,
    duration,
    embedder_advice,
    print_json,
    process_all,
    resume_command,
    say,
    show,
    styled,
)
from evervec.errors import EvervecError
from evervec.model.basics import as_datetime

if TYPE_CHECKING:
    from evervec.facade import Evervec
    from evervec.model.reports import Usage
    from evervec.tables.base import Attachment


@command("init", "evervec --store notes.db init")
def init(where: Where, as_json: bool) -> None:
    """Create the store, if it does not exist yet."""
    with where.opened(make=True) as ev:
        facts = {"store": ev.store.url, "embedder": ev.embedder.name, "model": ev.embedder.model}
    model = f" ({facts['model']})" if facts["model"] else ""
    ready = f"{facts['store']} is ready; embedder: {facts['embedder']}{model}"
    show(as_json, facts, ready, "next: evervec add KIND FILES…")


@command("status", "evervec status --watch")
@click.option("--watch", is_flag=True, help="Refresh every second.")
def status(where: Where, watch: bool, as_json: bool) -> None:
    """Show jobs by status, alerts, versions and workers."""
    with where.opened() as ev:
        if as_json:
            stats = ev.queue.stats()
            print_json(
                {
                    "stats": stats,
                    "versions": ev.versions(all_tenants=True),
                    "usage": ev.usage(),
                    "embedder": ev.embedder.name,
                    "workers": ev.store.workers.all(),
                    "tables": [_table_facts(ev, *attached) for attached in ev.tables.attached()],
                    "alerts": [
                        {"alert": a.name, "text": a.text, "since": as_datetime(a.since)}
                        for a in ev.alerts()
                    ],
                }
            )
            return
        while True:
            if watch:
                click.clear()
            _show_status(ev)
            if not watch:
                return
            try:
                time.sleep(1.0)
            except KeyboardInterrupt:
                return


def _show_status(ev: Evervec) -> None:
    stats = ev.queue.stats()
    say(f"store      {ev.store.url}")
    say(f"embedder   {ev.embedder.name} {ev.embedder.model}".rstrip())
    paused = f"  (paused; resume with `{resume_command(stats)}`)" if stats.paused else ""
    oldest = stats.oldest_pending_seconds
    since = f", oldest for {duration(oldest)}" if oldest is not None else ""
    say(f"waiting    {stats.pending}{since}{paused}")
    say(f"running    {stats.processing}")
    failed = styled(str(stats.failed), "red") if stats.failed else "0"
    hint = "  (see `evervec jobs --status failed`)" if stats.failed else ""
    say(f"failed     {failed}{hint}")
    pace = stats.average_processing_ms
    each = f", {pace:.0f} ms from claim to index" if pace is not None else ""
    say(f"done       {stats.done}, last {ago(stats.last_processed_at)}{each}")
    for attached, done in ev.tables.attached():
        table = _table_facts(ev, attached, done)
        state = f"attached, {table['embedded']} of about {table['rows']} rows are embedded"
        state += "" if done else "; existing rows are being enqueued"
        text = f"table      {attached.table} as {attached.kind}: {table['trouble'] or state}"
        say(styled(text, "red") if table["trouble"] else text)
    if stats.gate is not None:
        left = max(0.0, stats.gate.until - ev.store.now())
        what = "unavailable" if stats.gate.state == "outage" else "rate limited"
        since = duration(max(0.0, ev.store.now() - stats.gate.since))
        say(
            styled(f"provider   {what} for {since}: {stats.gate.reason}", "yellow")
            + (f"  (retry in {duration(left)})" if left else "  (a worker retries now)")
        )
    if stats.capped is not None:
        say(styled(f"provider   paused: {stats.capped}", "yellow"))
    for spent in stats.spent_today:
        money = f", {spent.money:.4f}" if spent.money else ""
        say(
            f"today      {spent.kind}: {spent.tokens:,} tokens in {spent.calls:,.0f} calls to "
            f"{spent.model}{money}"
        )
    _show_quotas(ev.usage())
    for alert in ev.alerts():
        since = duration(max(0.0, ev.store.now() - alert.since))
        say(styled(f"alert      {alert.text}", "red") + f"  (for {since})")
    for version in ev.versions(all_tenants=True):
        name = version.name or "(no model yet)"
        say(f"vectors    {version.kind}: {version.items} records, {name}, {version.state}")
    for worker in ev.store.workers.all():
        say(
            f"worker     {worker.worker}: last seen {ago(worker.seen_at)}, "
            f"{worker.held} in progress, {worker.done} done, evervec {worker.version}"
        )


def _show_quotas(used: Usage) -> None:
    for name, (has, may) in used.bounds().items():
        if name != "kinds" or has >= may:  # every tenant has a quota of kinds
            text = f"quota      {has:,} of {may:,} {name}"
            say(styled(text, "yellow") if has >= may else text)
    if (until := used.waits_until) is not None:
        text = f"quota      used up for today: jobs wait until {until:%Y-%m-%d %H:%M} UTC"
        say(styled(text, "yellow"))


@contextmanager
def _metrics(ev: Evervec, host: str, port: int | None, names: tuple[str, ...]) -> Iterator[None]:
    """Serve metrics while the block runs, if a port is given."""
    if port is None:
        yield
        return
    from evervec.maintenance.metrics import serve_metrics

    everyone = ev.queue_of(None)
    end = serve_metrics(host, port, ev.store, everyone, ev.models, names)
    try:
        yield
    finally:
        end()


def _table_facts(ev: Evervec, attached: Attachment, backfilled: bool) -> dict[str, Any]:
    serving = [
        v for v in ev.versions(all_tenants=True) if (v.kind, v.state) == (attached.kind, "serving")
    ]
    return {
        "table": attached.table,
        "kind": attached.kind,
        "trouble": ev.tables.trouble(attached) or ev.tables.set_aside(attached),
        "backfilled": backfilled,
        "rows": ev.tables.source.count(attached) if ev.tables.source else 0,
        "embedded": sum(version.items for version in serving),
    }


@command("worker", "evervec worker --drain")
@click.option("--drain", is_flag=True, help="Process all due jobs, then exit.")
@click.option("--concurrency", type=int, help="Provider calls in flight.  [3]")
@click.option("--metrics-port", type=click.IntRange(1, 65535), help="Port for Prometheus metrics.")
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="Address for metrics.")
@click.option("--metrics-name", multiple=True, help="Host name that Prometheus may ask for.")
def worker(where: Where, drain: bool, concurrency: int | None, metrics_port: int | None,
           metrics_host: str, metrics_name: tuple[str, ...], as_json: bool) -> int:  # fmt: skip
    """Process jobs until SIGTERM or Ctrl-C; a second signal stops at once."""
    settings = {} if concurrency is None else {"concurrency": concurrency}
    with where.opened(make=True, **settings) as ev:
        if ev.embedder.dimensions == 0:
            advice = embedder_advice(ev, "pip install 'evervec[local]', or give --embedder")
            raise EvervecError(f"no embedder, so nothing can be embedded: {advice}")
        if not drain:
            say(f"working on {ev.store.url} with {ev.embedder.name}; stop with Ctrl-C", err=True)
            with _metrics(ev, metrics_host, metrics_port, metrics_name):
                ev.run_worker()
            return 0
        result = process_all(ev, quiet=as_json)
        stats = ev.queue.stats()
    if as_json:
        print_json(result)
    else:
        say(f"{result.succeeded} embedded, {result.failed} failed, {stats.pending} waiting")
        if stats.processing:
            say(
                f"{stats.processing} are claimed by other workers; if those died, their leases "
                "expire within a minute: then run `evervec worker --drain` again"
            )
    return 1 if result.failed else 0


@command("doctor", "evervec doctor")
def doctor(where: Where, as_json: bool) -> int:
    """Check store, disk, model, index, versions and clock, and say how to fix each."""
    from evervec.cli.doctor import examine

    findings = examine(where)
    if as_json:
        print_json(findings)
    else:
        marks = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "bad": ("✗", "red")}
        for f in findings:
            mark, colour = marks[f.state]
            say(f"{styled(mark, colour)} {f.what:9} {f.finding}")
            if f.mend:
                say(f"  {'':9} {styled(f.mend, 'dim')}")
    return 1 if any(f.state == "bad" for f in findings) else 0


@command("demo", "evervec demo", with_json=False)
@click.option(
    "--keep",
    metavar="PATH",
    default="evervec-demo.db",
    show_default=True,
    help="Path of the demo's store, which is kept.",
)
def demo(where: Where, keep: str) -> int:
    """Index the documentation of this Python and search it; takes under a minute."""
    from evervec.cli.demo import main

    return main(keep, where.embedder)
