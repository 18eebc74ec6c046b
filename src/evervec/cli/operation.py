"""Commands for operation: status, worker, doctor, demo."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from evervec.cli.app import Where, command
from evervec.cli.fleet import run_fleet
from evervec.cli.lost import working
from evervec.cli.narration import narrated
from evervec.cli.output import (
    ago,
    embedder_advice,
    facts,
    print_json,
    resume_command,
    say,
    stream_line,
    styled,
)
from evervec.cli.saved_jobs import process_all, say_what_others_hold
from evervec.errors import EvervecError
from evervec.model.basics import as_datetime
from evervec.model.history import sum_points
from evervec.model.phrases import counted, duration
from evervec.runtime.garbage import keep_what_is_loaded
from evervec.runtime.packages import install_command
from evervec.runtime.threads import handling_signals

if TYPE_CHECKING:
    from evervec.facade import Evervec
    from evervec.model.reports import Sentence
    from evervec.model.usage import Usage


@command("status", "evervec status --watch")
@click.option("--watch", is_flag=True, help="Refresh every second, until Ctrl-C.")
def status(where: Where, watch: bool, as_json: bool) -> None:
    """Say what is wrong and what is under way; show jobs, versions and workers.

    With --watch the display is refreshed. If the output is not a terminal, the summary is printed
    again when it changes.
    """
    with where.opened() as ev:
        if as_json:
            stats = ev.queue.stats()
            print_json(
                {
                    "summary": ev.summary(),
                    "stats": stats,
                    "versions": ev.versions(all_tenants=True),
                    "usage": ev.usage(),
                    "embedder": ev.embedder.name,
                    "workers": ev.workers(),
                    "streams": ev.streams.states(),
                    "tables": ev.tables(),
                    "alerts": [
                        {"alert": a.name, "text": a.text, "since": as_datetime(a.since)}
                        for a in ev.alerts()
                    ],
                }
            )
            return
        if not watch:
            _show_status(ev)
            return
        stopped = threading.Event()  # a signal that interrupted a step of it could get lost
        with handling_signals(lambda number, frame: stopped.set()):
            _watch(ev, stopped)


def _watch(ev: Evervec, stopped: threading.Event) -> None:
    """Show the state again and again: on a terminal in place, else when it changed."""
    said: list[Sentence] = []
    while not stopped.is_set():
        if sys.stdout.isatty():
            click.clear()
            _show_status(ev)
        elif (sentences := ev.summary()) != said:
            said = sentences
            say(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")
            _show_sentences(sentences)
            sys.stdout.flush()
        stopped.wait(1.0)


_COLOURS = {"bad": "red", "warn": "yellow", "info": "bold", "ok": "green"}


def _show_sentences(sentences: Sequence[Sentence]) -> None:
    for sentence in sentences:
        hint = f"  ({sentence.hint})" if sentence.hint else ""
        say(styled(sentence.text, _COLOURS[sentence.level]) + hint)


def _show_lately(ev: Evervec) -> None:
    """What happened in the last minutes."""
    lately = sum_points(ev.history(timedelta(minutes=10)))
    if lately is not None and (lately.done or lately.failed or lately.retried):
        fresh = ""
        if lately.freshness_p50 is not None and lately.freshness_p99 is not None:
            half, most = duration(lately.freshness_p50), duration(lately.freshness_p99)
            fresh = f"; searchable after {half} (p50), {most} (p99)"
        say(
            f"10 min     {lately.done} done, {lately.failed} failed, {lately.retried} retried{fresh}"
        )


def _show_status(ev: Evervec) -> None:
    _show_sentences(ev.summary())
    say()
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
    each = f", {duration(pace / 1000)} from claim to index" if pace is not None else ""
    say(f"done       {stats.done}, last {ago(stats.last_processed_at)}{each}")
    _show_lately(ev)
    for table in ev.tables():
        rows = "an unknown number of" if table.rows is None else f"about {table.rows}"
        state = f"attached, {table.embedded} of {rows} rows are embedded"
        state += "; existing rows are being enqueued" if table.state == "backfilling" else ""
        text = f"table      {table.table} as {table.kind}: {table.trouble or state}"
        say(styled(text, "red") if table.trouble else text)
    for stream in ev.streams.states():
        say(f"stream     {stream_line(stream)}")
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
            f"today      {spent.kind or '(queries)'}: {spent.tokens:,} tokens in {spent.calls:,.0f} calls to "
            f"{spent.model}{money}"
        )
    _show_quotas(ev.usage())
    for alert in ev.alerts():
        since = duration(max(0.0, ev.store.now() - alert.since))
        say(styled(f"alert      {alert.text}", "red") + f"  (for {since})")
    for version in ev.versions(all_tenants=True):
        name = version.name or "(no model yet)"
        say(
            f"vectors    {version.kind}: {counted(version.items, 'record')}, {name}, {version.state}"
        )
    for worker in ev.workers():
        say(
            f"worker     {worker.worker}{' (paused)' * worker.paused}: last seen {ago(worker.seen_at)}, "
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
    end = serve_metrics(host, port, ev.store, everyone, ev.models, ev.index, names)
    try:
        yield
    finally:
        end()


@command("worker", "evervec worker --drain")
@click.option("--drain", is_flag=True, help="Process all due jobs, then exit.")
@click.option("--concurrency", type=int, help="Provider calls in flight.  [3]")
@click.option(
    "--ray", "address", metavar="ADDRESS", help="Run workers as actors of this Ray cluster."
)
@click.option("--actors", type=click.IntRange(1), help="Number of actors, at least.  [1]")
@click.option(
    "--max-actors", type=click.IntRange(1), help="Number while work waits, at most.  [--actors]"
)
@click.option("--gpus-per-actor", type=click.FloatRange(0), help="GPUs of each actor.  [0]")
@click.option("--metrics-port", type=click.IntRange(1, 65535), help="Port for Prometheus metrics.")
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="Address for metrics.")
@click.option("--metrics-name", multiple=True, help="Host name that Prometheus may ask for.")
def worker(where: Where, drain: bool, concurrency: int | None, address: str | None,
           actors: int | None, max_actors: int | None, gpus_per_actor: float | None,
           metrics_port: int | None, metrics_host: str, metrics_name: tuple[str, ...],
           as_json: bool) -> int:  # fmt: skip
    """Process jobs until SIGTERM or Ctrl-C; a second signal stops at once.

    With --drain, exit code 1 says that jobs failed or that an attached table is not followed.

    With --ray, keep a fleet of workers running in a Ray cluster: an address as for ray.init, such as
    auto or ray://head:10001, or local for this machine alone."""
    if address is not None:
        if drain:
            raise click.UsageError("--drain does not go with --ray")
        least = actors or 1
        size = (least, max(least, max_actors or least))
        with where.opened(make=True) as ev:
            run_fleet(ev, where, address, size, gpus_per_actor or 0.0, concurrency)
        return 0
    if actors or max_actors or gpus_per_actor is not None:
        raise click.UsageError("--actors, --max-actors and --gpus-per-actor need --ray")
    settings = {} if concurrency is None else {"concurrency": concurrency}
    with where.opened(make=not drain, **settings) as ev:  # a new store has no jobs to drain
        if ev.embedder.dimensions == 0:
            advice = embedder_advice(ev, f"{install_command('evervec[local]')}, or give --embedder")
            raise EvervecError(f"no embedder, so nothing can be embedded: {advice}")
        keep_what_is_loaded()
        if not drain:
            running = ev.worker()
            with (
                working(ev),
                _metrics(ev, metrics_host, metrics_port, metrics_name),
                narrated(ev, each_minute=sys.stderr.isatty()),
                running.stopped_by_signals(),
            ):
                for kind, trouble in ev.attachments.alarms():
                    say(styled(f"{kind}: {trouble}", "red"), err=True)
                say(
                    f"working on {ev.store.url} with {ev.embedder.name}; stop with Ctrl-C", err=True
                )
                running.run()
            return 0
        result = process_all(ev, quiet=as_json)
        stats = ev.queue.stats()
        tables = [table for table in ev.tables() if table.trouble]
    if as_json:
        print_json({**facts(result), "tables": {table.kind: table.trouble for table in tables}})
    else:
        say(
            f"{counted(result.succeeded, 'job')} done, {result.failed} failed, {stats.pending} waiting"
        )
        for table in tables:
            say(styled(f"{table.kind}: {table.trouble}", "red"), err=True)
        say_what_others_hold(ev, stats.processing)
    return 1 if result.failed or any(table.state == "broken" for table in tables) else 0


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
            if f.fix:
                say(f"  {'':9} {styled(f.fix, 'dim')}")
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
