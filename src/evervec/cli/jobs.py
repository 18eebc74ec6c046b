"""Commands for jobs: list, show, retry, recover, purge, cancel, pause, resume."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from evervec.cli.app import Where, command, write_audit
from evervec.cli.durations import read_time
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
from evervec.cli.selection import selecting
from evervec.errors import EvervecError
from evervec.model.job_filters import JobFilter
from evervec.model.phrases import counted, duration
from evervec.model.records import Content

if TYPE_CHECKING:
    from evervec.facade import Evervec


@command("jobs", "evervec jobs --status failed --error timeout")
@selecting
@click.option("--limit", default=20, show_default=True, help="Maximum number of jobs.")
def jobs(where: Where, wanted: JobFilter | None, limit: int, as_json: bool) -> None:
    """List jobs, the newest first; of each status at most 10,000 are searched."""
    with where.opened() as ev:
        found = ev.queue.jobs_where(wanted or JobFilter(), limit=limit)
    show_list(as_json, found, "no jobs", {
        "job": "job_id", "kind": "kind", "id": "record_id", "status": "status",
        "attempts": lambda job: f"{job.attempts}/{job.max_attempts}", "due": "scheduled_for",
        "error": "error",
    })  # fmt: skip


@command("job", "evervec job 42 --content")
@click.argument("job_id", type=int)
@click.option(
    "--content", "shows_content", is_flag=True, help="Also show the title, metadata and text."
)
def job(where: Where, job_id: int, shows_content: bool, as_json: bool) -> None:
    """Show a job and its history; with --content also the text that it embeds."""
    with where.opened() as ev:
        found = ev.queue.get(job_id)
        events = ev.queue.timeline(job_id)
        content = ev.queue.peek(job_id) if shows_content else None
    if found is None:
        raise EvervecError(
            f"job {job_id} does not exist (any more): `evervec jobs` lists those that do"
        )
    if as_json:
        print_json(
            facts(found) | {"timeline": events} | ({"content": content} if shows_content else {})
        )
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
    say()
    print_table(
        ("event", "when", "attempt", "after", "worker", "error"),
        [
            (
                e.what, f"{e.at:%Y-%m-%d %H:%M:%S.%f}"[:-3], e.attempt,
                None if e.seconds is None else duration(e.seconds), e.worker, e.error,
            )
            for e in events
        ],
    )  # fmt: skip
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


@command("retry", "evervec retry --error timeout --dry-run")
@click.argument("job_id", type=int, required=False)
@click.option("--all", "everything", is_flag=True, help="All failed jobs.")
@selecting
@click.option("--dry-run", is_flag=True, help="Change nothing; only count the jobs.")
def retry(where: Where, job_id: int | None, everything: bool, wanted: JobFilter | None,
          dry_run: bool, as_json: bool) -> None:  # fmt: skip
    """Retry failed jobs: one, all, or those that match (at most 10,000)."""
    _check_one(job_id, everything, wanted, dry_run)
    with where.opened() as ev:
        if job_id is not None:
            ev.queue.retry(job_id)
            write_audit(ev, "job.retry", str(job_id))
            count = 1
        elif wanted is not None:
            count = ev.queue.retry_where(wanted, dry_run=dry_run)
            _audit_many(ev, "jobs.retry", wanted, dry_run)
        else:
            count = ev.queue.retry_failed()
            write_audit(ev, "queue.retry-failed")
    verb = "would" if dry_run else "will"
    show(as_json, {"retried": count}, f"{counted(count, 'job')} {verb} be retried")


def _check_one(
    job_id: int | None, everything: bool, wanted: JobFilter | None, dry_run: bool = False
) -> None:
    """Exactly one way to say which jobs; a dry run is for those that match."""
    if (job_id is not None) + everything + (wanted is not None) != 1:
        raise click.UsageError("give a job id, --all, or options that select jobs")
    if dry_run and wanted is None:
        raise click.UsageError("--dry-run needs options that select jobs")


def _audit_many(ev: Evervec, action: str, wanted: JobFilter, dry_run: bool) -> None:
    if not dry_run:
        given = {name: value for name, value in facts(wanted).items() if value}
        write_audit(ev, action, json.dumps(given, default=str))


@command("recover", "evervec recover --older-than 10min")
@click.option(
    "--older-than", metavar="TIME", help="Also jobs claimed longer ago than this, e.g. 10min."
)
def recover(where: Where, older_than: str | None, as_json: bool) -> None:
    """Recover jobs whose worker died."""
    with where.opened() as ev:
        count = ev.queue.recover_stuck(read_time(older_than) if older_than else None)
        write_audit(ev, "queue.recover-stuck", everyone=True)
    show(as_json, {"recovered": count}, f"{counted(count, 'job')} recovered")
    if not count and not as_json:
        say("(no lease has expired; --older-than TIME also recovers jobs claimed longer ago)")


@command("purge", "evervec purge --done --older-than 1d")
@click.option("--done", is_flag=True, help="Done jobs (records and vectors are kept).")
@click.option("--dead", is_flag=True, help="Dead letters.")
@click.option(
    "--boxed", is_flag=True,
    help="With --dead: also jobs of records added with boxed=True that never became visible; "
    "these records are lost.",
)  # fmt: skip
@click.option(
    "--older-than",
    metavar="TIME",
    default="7d",
    show_default=True,
    help="Only jobs that ended longer ago than this.",
)
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
    show(as_json, {"purged": count}, f"{counted(count, 'job')} purged")


@command("cancel", "evervec cancel --kind page --older-than 1d --dry-run")
@click.argument("job_id", type=int, required=False)
@selecting
@click.option("--dry-run", is_flag=True, help="Change nothing; only count the jobs.")
def cancel(where: Where, job_id: int | None, wanted: JobFilter | None, dry_run: bool,
           as_json: bool) -> None:  # fmt: skip
    """Remove pending or failed jobs: one, or all that match (at most 10,000)."""
    _check_one(job_id, False, wanted, dry_run)
    with where.opened() as ev:
        if job_id is not None:
            ev.queue.cancel(job_id)
            write_audit(ev, "job.cancel", str(job_id))
            count = 1
        else:
            assert wanted is not None
            count = ev.queue.cancel_where(wanted, dry_run=dry_run)
            _audit_many(ev, "jobs.cancel", wanted, dry_run)
    ending = "would be cancelled" if dry_run else "cancelled"
    show(as_json, {"cancelled": count}, f"{counted(count, 'job')} {ending}")


@command("priority", "evervec priority 10 --kind page")
@click.argument("n", type=int)
@selecting
@click.option("--dry-run", is_flag=True, help="Change nothing; only count the jobs.")
def priority(where: Where, n: int, wanted: JobFilter | None, dry_run: bool, as_json: bool) -> None:
    """Change the priority of the pending jobs that match (at most 10,000)."""
    _check_one(None, False, wanted, dry_run)
    assert wanted is not None
    with where.opened() as ev:
        count = ev.queue.set_priority_where(wanted, n, dry_run=dry_run)
        _audit_many(ev, "jobs.priority", wanted, dry_run)
    verb = "would get" if dry_run else "got"
    show(as_json, {"changed": count}, f"{counted(count, 'job')} {verb} priority {n}")


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
