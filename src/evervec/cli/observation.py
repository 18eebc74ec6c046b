"""Commands that say what happened: history, failures."""

from __future__ import annotations

from itertools import dropwhile

import click

from evervec.cli.app import Where, command, write_audit
from evervec.cli.durations import read_time
from evervec.cli.output import show, show_list
from evervec.errors import InvalidArgument
from evervec.model.history import HistoryPoint


@command("history", "evervec history --since 1d --step 1h")
@click.argument("kind", required=False)
@click.argument("id", required=False)
@click.option("--since", metavar="TIME", help="Without ID: how far back, e.g. 3h or 7d.  [1h]")
@click.option("--step", metavar="TIME", help="Without ID: period of each line, e.g. 10min.")
def history(where: Where, kind: str | None, id: str | None, since: str | None, step: str | None,
            as_json: bool) -> None:  # fmt: skip
    """Show what happened over time, or the attempts of a record.

    Without ID: jobs done and failed, chunks, tokens, depth of the queue and freshness, of the
    tenant and, with KIND, of that kind. With KIND and ID: the attempts of that record, oldest first.
    """
    if id is not None and kind is not None:
        if since or step:
            raise click.UsageError("--since and --step are for the history without ID")
        _show_attempts(where, kind, id, as_json)
        return
    with where.opened() as ev:
        points = ev.history(
            read_time(since) if since else None, read_time(step) if step else None, kind
        )
    if not as_json:  # a table begins with the first line that says something
        points = list(dropwhile(_is_empty, points))
    show_list(as_json, points, "nothing happened in this time", {
        "from": lambda p: f"{p.at:%m-%d %H:%M}", "done": "done", "failed": "failed",
        "retried": "retried", "embedded": "chunks_embedded", "reused": "chunks_reused",
        "tokens": "tokens", "money": lambda p: f"{p.money:.4f}" if p.money else None,
        "waiting": "depth", "p50 s": "freshness_p50", "p99 s": "freshness_p99",
    })  # fmt: skip


def _is_empty(point: HistoryPoint) -> bool:
    return not (point.done or point.failed or point.retried or point.depth)


def _show_attempts(where: Where, kind: str, id: str, as_json: bool) -> None:
    with where.opened() as ev:
        found = ev.queue.history(kind, id)
    show_list(as_json, found, "no attempts yet", {
        "attempt": "attempt", "version": "embedding_version", "when": "finished_at",
        "outcome": "outcome",
        "embedded": "chunks_embedded", "reused": "chunks_reused", "worker": "worker",
        "error": "error",
    })  # fmt: skip


@command("failures", "evervec failures")
@click.option("--kind", help="Only of this kind.")
@click.option("--dismissed", is_flag=True, help="Also groups that were dismissed.")
@click.option("--limit", default=20, show_default=True, help="Maximum number of groups.")
def failures(where: Where, kind: str | None, dismissed: bool, limit: int, as_json: bool) -> None:
    """List failures in groups of similar ones, latest first."""
    with where.opened() as ev:
        found = ev.failures(limit, kind, dismissed=dismissed)
    show_list(as_json, found, "no failures", {
        "fingerprint": "fingerprint", "kind": "kind", "open": "open", "failed": "failed",
        "retried": "retried", "first": "first_seen", "last": "last_seen", "message": "message",
    })  # fmt: skip


@command("dismiss", "evervec dismiss 8fb20ef63ced4145")
@click.argument("fingerprint")
def dismiss(where: Where, fingerprint: str, as_json: bool) -> None:
    """Hide a group of failures until a job of it fails again; its jobs are kept."""
    with where.opened() as ev:
        count = ev.dismiss_failures(fingerprint)
        if not count:
            raise InvalidArgument(
                f"there is no group of failures {fingerprint!r}: see `evervec failures`"
            )
        write_audit(ev, "failures.dismiss", fingerprint)
    show(as_json, {"dismissed": count}, "dismissed: hidden until a job of this group fails again")


@command("workers", "evervec workers --pause host:4711")
@click.option("--pause", metavar="WORKER", help="Let this one claim nothing more.")
@click.option("--resume", metavar="WORKER", help="Let this one claim jobs again.")
def workers(where: Where, pause: str | None, resume: str | None, as_json: bool) -> None:
    """List the workers, or pause or resume one of them.

    A paused worker finishes what it has, and claims nothing until it is resumed or ends.
    """
    with where.opened() as ev:
        if pause is not None:
            ev.pause_worker(pause)
            write_audit(ev, "worker.pause", pause, everyone=True)
        if resume is not None:
            ev.resume_worker(resume)
            write_audit(ev, "worker.resume", resume, everyone=True)
        found = ev.workers()
    show_list(as_json, found, "no workers", {
        "worker": "worker", "state": lambda w: "paused" if w.paused else "working",
        "seen": "seen_at", "in progress": "held", "done": "done", "started": "started_at",
        "evervec": "version",
    })  # fmt: skip
