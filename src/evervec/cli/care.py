"""Commands for operation: init, status, worker, backfill, verify, reindex, doctor, demo."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from evervec.cli.app import Where, as_json, command, note
from evervec.cli.output import (
    ago,
    duration,
    embedder_advice,
    print_json,
    print_table,
    progress,
    resume_command,
    say,
    styled,
)
from evervec.model.basics import as_datetime
from evervec.model.reports import QUICK

if TYPE_CHECKING:
    from evervec.facade import Evervec
    from evervec.maintenance.alerts import Episode
    from evervec.model.reports import Backfill, Usage, VerifyReport
    from evervec.tables.base import Attachment


@command("init", "evervec --store notes.db init")
@as_json
def init(where: Where, as_json: bool) -> None:
    """Create the store, if it does not exist yet."""
    with where.opened(make=True) as ev:
        facts = {"store": ev.store.url, "embedder": ev.embedder.name, "model": ev.embedder.model}
    if as_json:
        print_json(facts)
        return
    model = f" ({facts['model']})" if facts["model"] else ""
    say(f"{facts['store']} is ready; embedder: {facts['embedder']}{model}")
    say("next: evervec add KIND FILES…")


@command("status", "evervec status --watch")
@click.option("--watch", is_flag=True, help="Refresh every second.")
@as_json
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
                    "alerts": [_alert_facts(alert) for alert in ev.housekeeping.alerts.lasting()],
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
    for alert in ev.housekeeping.alerts.lasting():
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


def _alert_facts(alert: Episode) -> dict[str, Any]:
    return {"alert": alert.name, "text": alert.text, "since": as_datetime(alert.since)}


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
@as_json
def worker(
    where: Where,
    drain: bool,
    concurrency: int | None,
    metrics_port: int | None,
    metrics_host: str,
    metrics_name: tuple[str, ...],
    as_json: bool,
) -> int:
    """Process jobs until SIGTERM or Ctrl-C; a second signal stops at once."""
    settings = {} if concurrency is None else {"concurrency": concurrency}
    with where.opened(make=True, **settings) as ev:
        if ev.embedder.dimensions == 0:
            say(
                "evervec: no embedder, so nothing can be embedded: "
                + embedder_advice(ev, "pip install 'evervec[local]', or give --embedder"),
                err=True,
            )
            return 1
        if not drain:
            say(f"working on {ev.store.url} with {ev.embedder.name}; stop with Ctrl-C", err=True)
            with _metrics(ev, metrics_host, metrics_port, metrics_name):
                ev.run_worker()
            return 0
        with progress("embedding", ev.queue.stats().pending, quiet=as_json) as bar:
            result = ev.process_all(progress=bar.advance)
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
        for job_id, error in result.errors[:10]:
            say(f"job {job_id}: {error}", err=True)
    return 1 if result.failed else 0


@command("backfill", "evervec backfill --dry-run")
@click.option("--kind", help="Only this kind.")
@click.option("--dry-run", is_flag=True, help="Only show the estimate.")
@as_json
def backfill(where: Where, kind: str | None, dry_run: bool, as_json: bool) -> None:
    """Enqueue records without current vectors, behind all live work."""
    with where.opened() as ev:
        plan = ev.backfill(kind, dry_run=True)
        if not as_json:
            say(_estimate(plan))
        if not dry_run and plan.records + plan.rendered:
            total = sum(v.items for v in ev.versions(all_tenants=True) if kind in (None, v.kind))
            with progress("scanning", total, quiet=as_json) as bar:
                plan = ev.backfill(kind, progress=bar.advance)
            if not as_json:
                say(f"{plan.enqueued} enqueued; `evervec worker` embeds them")
    if as_json:
        print_json(plan)


def _estimate(plan: Backfill) -> str:
    if not plan.records + plan.rendered:
        return "every record has current vectors, or a job to make them"
    again = f", {plan.rendered} of them rendered again" if plan.rendered else ""
    money = f", {plan.money:.4f}" if plan.money else ""
    count = max(plan.records, plan.rendered)
    return (
        f"{count} records lack current vectors{again}: at most {plan.tokens:,} tokens{money}; "
        "unchanged chunks cost nothing"
    )


@command("verify", "evervec verify --all-tenants --repair")
@click.option("--repair", is_flag=True, help="Repair and embed what is wrong, then verify again.")
@click.option("--quick", is_flag=True, help="Do not compare the records' texts.")
@click.option("--all-tenants", is_flag=True, help="Check the records of all tenants.")
@as_json
def verify(where: Where, repair: bool, quick: bool, all_tenants: bool, as_json: bool) -> int:
    """Check that index and records agree.

    Exit code 0: they agree. 1: something is wrong, or failed. 3: nothing is wrong, but some
    records wait for a worker, or could not be checked.
    """
    with where.opened() as ev:

        def look(repair: bool) -> VerifyReport:
            with progress("verifying", _held(ev, all_tenants), quiet=as_json) as bar:
                return ev.verify(repair, quick=quick, all_tenants=all_tenants, progress=bar.advance)

        report, left, waits = look(repair), None, None
        if repair:
            note(ev, "index.repair", everyone=all_tenants)
        if repair and not report.clean:
            with progress("embedding", ev.queue.stats().pending, quiet=as_json) as bar:
                ev.process_all(progress=bar.advance)
            left = look(False)
            if ev.queue.stats().pending:
                waits = ev.provider.pauses_because() or ev.embedder_because
    if as_json:
        print_json(_facts(report) | {"left": left and _facts(left)})
    else:
        _show_report(report)
        if left is not None:
            say(f"{report.repaired} repaired; after that:")
            _show_report(left)
        if waits:
            say(f"embedding is paused: {waits}")
        elif left is None and not report.clean:
            say("to repair, run `evervec verify --repair`")
    return 1 if waits else _exit_code(left or report, quick)


def _held(ev: Evervec, all_tenants: bool) -> int:
    """Approximate number of records to check."""
    if all_tenants:
        return sum(version.items for version in ev.versions())
    return sum(holding.items for holding in ev.store.versions.holdings(ev.tenant).values())


def _exit_code(report: VerifyReport, quick: bool) -> int:
    if not report.clean or report.failed:
        return 1
    left_out = [what for what in report.unchecked if not (quick and what == QUICK)]
    return 3 if report.waiting or left_out else 0


def _facts(report: VerifyReport) -> dict[str, Any]:
    return {**dataclasses.asdict(report), "clean": report.clean, "complete": report.complete}


def _show_report(report: VerifyReport) -> None:
    say(f"{report.checked} records checked")
    for name, count in report.faults.items():
        say(f"{count} {name}")
    for trouble in report.troubles:
        say(styled(f"table {trouble}", "red"))
    if report.failed:
        say(f"{report.failed} failed: see `evervec jobs --status failed`")
    if report.waiting:
        say(f"{report.waiting} not checked: waiting for a worker, or changing now")
    for what in report.unchecked:
        say(f"not checked: {what}")
    if report.complete:
        say("the index holds exactly the latest version of each record")
    elif report.clean:
        say("no faults among the checked records")
    elif len(report.by) > 1:
        head = [field.name for field in dataclasses.fields(report.by[0])]
        print_table(head, [dataclasses.astuple(tally) for tally in report.by])


@command("reindex", "evervec --store notes.db reindex lancedb://vectors")
@click.argument("url", metavar="URL")
@as_json
def reindex(where: Where, url: str, as_json: bool) -> None:
    """Change to another index and make all vectors again there.

    URL is that of the index, or `own` for the store's own database. First stop the workers and
    services that use the current index. If the new index already holds the vectors, because it
    was moved or copied, nothing is embedded again.
    """
    if where.app:
        raise click.UsageError("reindex does not work with --app: give --store instead")
    with dataclasses.replace(where, index=url).opened(reindex=True) as ev:
        facts = {"index": "own" if ev.index.shares_store else ev.index.url,
                 "waiting": ev.queue.stats().pending}  # fmt: skip
    if as_json:
        print_json(facts)
    else:
        say(f"the index is {facts['index']}; {facts['waiting']} records wait for a worker")


@command("doctor", "evervec doctor")
@as_json
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


@command("demo", "evervec demo")
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
