"""Commands for jobs: list, show, retry, recover, purge, cancel, pause, resume."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import click

from evervec.cli.app import Where, command, write_audit
from evervec.cli.output import (
    facts,
    print_json,
    print_table,
    say,
    say_text,
    show,
    show_list,
    styled,
)
from evervec.errors import EvervecError
from evervec.model.records import Content


@command("jobs", "evervec jobs --status failed")
@click.option("--status", help="pending, processing, done or failed.")
@click.option("--limit", default=20, show_default=True)
def jobs(where: Where, status: str | None, limit: int, as_json: bool) -> None:
    """List jobs."""
    with where.opened() as ev:
        found = ev.queue.jobs(status=status, limit=limit)
    show_list(as_json, found, "no jobs", {
        "job": "job_id", "kind": "kind", "id": "record_id", "status": "status",
        "attempts": lambda job: f"{job.attempts}/{job.max_attempts}", "due": "scheduled_for",
        "error": "error",
    })  # fmt: skip


@command("job", "evervec job 42 --content")
@click.argument("job_id", type=int)
@click.option("--content", "shows_content", is_flag=True, help="Also what it embeds.")
def job(where: Where, job_id: int, shows_content: bool, as_json: bool) -> None:
    """Show one job; with --content also its record, even if that is boxed."""
    with where.opened() as ev:
        found = ev.queue.get(job_id)
        content = ev.queue.peek(job_id) if shows_content else None
    if found is None:
        raise EvervecError(f"job {job_id} does not exist")
    if as_json:
        print_json(facts(found) | ({"content": content} if shows_content else {}))
        return
    print_table(
        ("what", "value"),
        [
            ("record", f"{found.kind} {found.record_id}"),
            ("version", found.embedding_version or "none yet"),
            ("status", found.status),
            ("attempts", f"{found.attempts} of {found.max_attempts}"),
            ("priority", found.priority),
            ("due", found.scheduled_for),
            ("started", found.started_at),
            ("completed", found.completed_at),
            ("error", found.error),
        ],
    )
    if shows_content:
        say()
        _show_content(content)


def _show_content(content: Content | None) -> None:
    if content is None:
        say("the record is deleted: its vectors are to be removed")
        return
    if content.title:
        say(styled(content.title, "bold"))
    if content.metadata:
        say(json.dumps(content.metadata, ensure_ascii=False))
    say_text(content.text)


@command("history", "evervec history doc README.md")
@click.argument("kind")
@click.argument("id")
def history(where: Where, kind: str, id: str, as_json: bool) -> None:
    """Show the attempts of a record, oldest first."""
    with where.opened() as ev:
        found = ev.queue.history(kind, id)
    show_list(as_json, found, "no attempts yet", {
        "attempt": "attempt", "when": "finished_at", "outcome": "outcome",
        "embedded": "chunks_embedded", "reused": "chunks_reused", "worker": "worker",
        "error": "error",
    })  # fmt: skip


@command("retry", "evervec retry --all")
@click.argument("job_id", type=int, required=False)
@click.option("--all", "everything", is_flag=True, help="All failed jobs.")
def retry(where: Where, job_id: int | None, everything: bool, as_json: bool) -> None:
    """Retry failed jobs."""
    if (job_id is None) is not everything:
        raise click.UsageError("give a job id, or --all")
    with where.opened() as ev:
        if job_id is None:
            count = ev.queue.retry_failed()
            write_audit(ev, "queue.retry-failed")
        else:
            ev.queue.retry(job_id)
            write_audit(ev, "job.retry", str(job_id))
            count = 1
    show(as_json, {"retried": count}, f"{count} jobs will be retried")


@command("recover", "evervec recover --older-than 10min")
@click.option("--older-than", metavar="TIME", help="Also jobs claimed before that, e.g. 10min.")
def recover(where: Where, older_than: str | None, as_json: bool) -> None:
    """Recover jobs whose worker died."""
    with where.opened() as ev:
        count = ev.queue.recover_stuck(read_time(older_than) if older_than else None)
        write_audit(ev, "queue.recover-stuck", everyone=True)
    show(as_json, {"recovered": count}, f"{count} jobs recovered")
    if not count and not as_json:
        say("(only jobs with an expired lease; --older-than TIME also takes jobs claimed before)")


@command("purge", "evervec purge --done --older-than 1d")
@click.option("--done", is_flag=True, help="Done jobs (records and vectors are kept).")
@click.option("--dead", is_flag=True, help="Dead letters.")
@click.option("--boxed", is_flag=True, help="With --dead: also those that hold a boxed record.")
@click.option("--older-than", metavar="TIME", default="7d", show_default=True)
def purge(
    where: Where, done: bool, dead: bool, boxed: bool, older_than: str, as_json: bool
) -> None:
    """Purge old jobs."""
    if not done and not dead:
        raise click.UsageError("give --done, --dead or both")
    age = read_time(older_than)
    with where.opened() as ev:
        count = ev.queue.purge_done(age) if done else 0
        count += ev.queue.purge_dead(age, boxed=boxed) if dead else 0
        what = " and ".join(name for name, asked in (("done", done), ("failed", dead)) if asked)
        write_audit(ev, "queue.purge", f"{what}, older than {age.total_seconds():g} s")
    show(as_json, {"purged": count}, f"{count} jobs purged")


@command("cancel", "evervec cancel 42")
@click.argument("job_id", type=int)
def cancel(where: Where, job_id: int, as_json: bool) -> None:
    """Remove a pending or failed job."""
    with where.opened() as ev:
        ev.queue.cancel(job_id)
        write_audit(ev, "job.cancel", str(job_id))
    show(as_json, {"cancelled": 1}, "1 job cancelled")


@command("pause", "evervec --tenant acme pause")
def pause(where: Where, as_json: bool) -> None:
    """Stop workers from claiming jobs, until resume; with --tenant, one tenant's jobs."""
    with where.opened() as ev:
        ev.queue.pause(own=where.tenant is not None)
        write_audit(ev, "queue.pause", everyone=where.tenant is None)
    goes_on = f"evervec --tenant {where.tenant} resume" if where.tenant else "evervec resume"
    show(as_json, {"paused": True}, f"paused; resume with `{goes_on}`")


@command("resume", "evervec --tenant acme resume")
def resume(where: Where, as_json: bool) -> None:
    """Let workers claim jobs again; with --tenant, end the pause of one tenant."""
    with where.opened() as ev:
        was_paused = ev.store.jobs.paused(where.tenant)
        ev.queue.resume(own=where.tenant is not None)
        write_audit(ev, "queue.resume", everyone=where.tenant is None)
        paused = ev.store.jobs.paused(where.tenant)
    if paused:
        sentence = "the whole store is still paused: resume it with `evervec resume`"
    elif was_paused:
        sentence = "resumed"
    else:
        sentence = f"{where.tenant or 'the store'} was not paused"
    show(as_json, {"paused": paused}, sentence)


_UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}


def read_time(text: str) -> timedelta:
    """Parse a duration such as `30s`, `10min`, `2h` or `7d`."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*(s|min|m|h|d)", text)
    if not found:
        raise click.UsageError(f"'{text}' is not a duration; write 30s, 10min, 2h or 7d")
    return timedelta(seconds=float(found[1]) * _UNITS[found[2]])
