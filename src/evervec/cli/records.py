"""Commands for records: add, get, delete."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from evervec.cli.app import Where, command, write_audit
from evervec.cli.output import (
    embedder_advice,
    print_json,
    process_all,
    progress,
    say,
    say_text,
    show,
    styled,
)
from evervec.errors import EvervecError, InvalidRecord

if TYPE_CHECKING:
    from evervec.facade import Evervec


COUNTED = ("added", "updated", "unchanged", "deleted", "skipped")


@command("add", "evervec add doc docs/ README.md --sync")
@click.argument("kind")
@click.argument("files", nargs=-1)
@click.option(
    "--jsonl",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help='Read records from a JSON lines file: {"id": …, "text": …, "title": …, …}.',
)
@click.option("--id", "id", help="Id of the record from standard input.")
@click.option("--sync", is_flag=True, help="Delete records whose file no longer exists.")
@click.option("--no-embed", is_flag=True, help="Only save; leave embedding to a worker.")
def add(where: Where, kind: str, files: tuple[str, ...], jsonl: str | None, id: str | None,
        sync: bool, no_embed: bool, as_json: bool) -> int:  # fmt: skip
    """Add files, folders, JSON lines or standard input (-), and embed them.

    Unchanged records are not embedded again.
    """
    if jsonl and files:
        raise click.UsageError("give files or --jsonl, not both")
    if sync and (jsonl or not files or files == ("-",)):
        raise click.UsageError("--sync needs folders: it deletes records of removed files")
    with where.opened(make=True) as ev:
        counts = dict.fromkeys(COUNTED, 0)
        if jsonl:
            _save(ev, kind, _lines(jsonl), counts, None, as_json)
        elif files in ((), ("-",)):
            if files == () and sys.stdin.isatty():
                raise click.UsageError(
                    "give files or folders, --jsonl FILE, or - for standard input"
                )
            text = sys.stdin.read()
            if not text.strip():
                raise click.UsageError("standard input is empty")
            record = {"text": text, **({"id": id} if id else {})}
            _save(ev, kind, iter([record]), counts, 1, as_json)
        else:
            add_files(ev, kind, files, counts, sync=sync, quiet=as_json)
        failed = 0 if no_embed else embed(ev, quiet=as_json)
        waiting = ev.queue.stats().pending
        facts = {**counts, "failed": failed, "waiting": waiting}
        show(as_json, facts, summary(counts) or "nothing to add")
        if not as_json:
            _say_what_waits(ev, waiting, failed)
        return 1 if failed else 0


def summary(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def add_files(ev: Evervec, kind: str, named: tuple[str, ...], counts: dict[str, int], *,
               sync: bool, quiet: bool) -> None:  # fmt: skip
    from evervec.cli.files import find, read

    sources, prefixes = find(named)
    seen = set()

    def records() -> Iterator[Any]:
        for source in sources:
            made = read(source)
            if isinstance(made, str):
                counts["skipped"] += 1
                if not quiet:
                    say(f"skipped {source.path}: {made}", err=True)
                continue
            seen.add(source.id)
            yield made

    _save(ev, kind, records(), counts, len(sources), quiet)
    if not sync:
        return
    after = None
    while batch := ev.records(kind, after=after, limit=1000):
        after = batch[-1]
        for record in batch:
            inside = any(record.id.startswith(prefix) for prefix in prefixes)
            if inside and "path" in record.metadata and record.id not in seen:
                ev.delete(kind, record.id)
                counts["deleted"] += 1


def _save(ev: Evervec, kind: str, records: Iterator[Any], counts: dict[str, int],
          total: int | None, quiet: bool) -> None:  # fmt: skip
    with progress("saving", total, quiet=quiet) as bar:
        for ticket in ev.add_many(kind, records):
            what = "added" if ticket.is_new else "updated"
            counts[what if ticket.enqueued else "unchanged"] += 1
            bar.advance()


def _lines(path: str) -> Iterator[Any]:
    with nullcontext(sys.stdin) if path == "-" else Path(path).open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise InvalidRecord(f"line {number} of {path} is not JSON: {error}") from None


def embed(ev: Evervec, *, quiet: bool) -> int:
    return process_all(ev, quiet=quiet).failed if ev.embedder.dimensions else 0


def _say_what_waits(ev: Evervec, waiting: int, failed: int) -> None:
    if failed:
        say(f"{failed} failed; see `evervec jobs --status failed`", err=True)
    if waiting and ev.embedder.dimensions == 0:
        say(
            f"{waiting} are waiting for an embedder; text search finds them already. "
            + embedder_advice(ev, "Install one: pip install 'evervec[local]'")
        )
    elif waiting and (why := ev.provider.pauses_because()):
        say(
            f"{waiting} are waiting ({why}); text search finds them already, and `evervec worker` "
            "embeds them later"
        )
    elif waiting:
        say(f"{waiting} are waiting; `evervec worker --drain` embeds those that are due")


@command("get", "evervec get doc README.md")
@click.argument("kind")
@click.argument("id")
def get(where: Where, kind: str, id: str, as_json: bool) -> None:
    """Show a record."""
    with where.opened() as ev:
        record = ev.get(kind, id)
    if record is None:
        raise EvervecError(f"{kind} {id!r} does not exist")
    if as_json:
        print_json(record)
        return
    state = "embedded" if record.embedded else "not embedded yet"
    say(styled(record.title or record.id, "bold"))
    say(f"{record.kind} {record.id}, seq {record.seq}, weight {record.weight:g}, {state}")
    if record.metadata:
        say(json.dumps(record.metadata, ensure_ascii=False))
    say()
    say_text(record.text)


@command("delete", "evervec delete doc README.md")
@click.argument("kind")
@click.argument("ids", nargs=-1, required=True)
def delete(where: Where, kind: str, ids: tuple[str, ...], as_json: bool) -> int:
    """Delete records; searches no longer return them."""
    with where.opened() as ev:
        tickets = [ev.delete(kind, id) for id in ids]
        for ticket in tickets:
            if ticket.accepted:
                write_audit(ev, "record.delete", f"{kind}/{ticket.id}")
        ev.process_all()
    missing = [ticket.id for ticket in tickets if not ticket.accepted]
    show(as_json, tickets, f"deleted {len(tickets) - len(missing)}")
    for id in missing:
        say(f"evervec: {kind} {id!r} does not exist", err=True)
    return 1 if missing else 0
