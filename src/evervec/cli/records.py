"""Commands for records: add, sync, get, list, delete."""

from __future__ import annotations

import json
import os
import shlex
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
    progress,
    say,
    say_text,
    show,
    styled,
)
from evervec.cli.saved_jobs import embed, say_what_others_hold
from evervec.errors import EvervecError, InvalidRecord
from evervec.model.phrases import counted
from evervec.runtime.packages import install_command
from evervec.runtime.threads import interrupted_by_signals

if TYPE_CHECKING:
    from evervec.facade import Evervec


_ALONE = {"alert_lag_seconds": 0}
"""the caller waits for these commands, so no alert has to tell that their own work is long"""
_NAMED = 20
"""changed files that `sync --watch` names at once, at most"""


@command("add", "evervec add doc docs/ README.md --sync")
@click.argument("kind")
@click.argument("files", nargs=-1)
@click.option(
    "--jsonl",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help='Read records from a JSON lines file: {"id": …, "text": …, "title": …, …}.',
)
@click.option("--id", "id", help="Id of the record from standard input.")
@click.option(
    "--root", metavar="FOLDER", help="Ids are paths below this folder.  [the folder that is given]"
)
@click.option("--sync", is_flag=True, help="Delete records whose file no longer exists.")
@click.option("--no-ignore", is_flag=True, help="Also files that .gitignore excludes.")
@click.option("--no-embed", is_flag=True, help="Only save; leave embedding to a worker.")
def add(where: Where, kind: str, files: tuple[str, ...], jsonl: str | None, id: str | None,
        root: str | None, sync: bool, no_ignore: bool, no_embed: bool,
        as_json: bool) -> int:  # fmt: skip
    """Add files, folders, JSON lines or standard input (-), and embed them.

    A file's id is its path below the folder that is given, or below --root. Markdown,
    reStructuredText, HTML, source code, notebooks, subtitles and Word are read, and PDF with the
    extra pdf. Unchanged records are not embedded again.
    """
    if jsonl and files:
        raise click.UsageError("give files or --jsonl, not both")
    _check_kind(kind, files, jsonl)
    if sync and (jsonl or not files or files == ("-",)):
        raise click.UsageError("--sync needs folders: it deletes records of removed files")
    if root is not None and (jsonl or not files or files == ("-",)):
        raise click.UsageError("--root needs files or folders below it")
    from evervec.cli.files import COUNTED, FileRecords

    with where.opened(make=True, **_ALONE) as ev:
        counts = dict.fromkeys(COUNTED, 0)
        if jsonl:
            _save(ev, kind, _lines(jsonl), counts, None, as_json)
        elif files in ((), ("-",)):
            if files == () and sys.stdin.isatty():
                raise click.UsageError(
                    "give files or folders, --jsonl FILE, or - for standard input"
                    f"{_forgotten(kind)}"
                )
            text = sys.stdin.read()
            if not text.strip():
                raise click.UsageError(f"standard input is empty{_forgotten(kind)}")
            record = {"text": text, **({"id": id} if id else {})}
            _save(ev, kind, iter([record]), counts, 1, as_json)
        else:
            adding = FileRecords(ev, kind, counts, quiet=as_json)
            adding.add(files, root, sync=sync, ignored=no_ignore)
        failed = 0 if no_embed else embed(ev, quiet=as_json)
        stats = ev.queue.stats()
        facts = {
            **counts, "failed": failed, "waiting": stats.pending, "processing": stats.processing,
        }  # fmt: skip
        show(as_json, facts, summary(counts) or "nothing to add")
        if not as_json:
            _say_what_waits(ev, stats.pending, failed)
            say_what_others_hold(ev, stats.processing)
        return 1 if failed else 0


def _check_kind(kind: str, files: tuple[str, ...], jsonl: str | None) -> None:
    """Refuse a path where the kind belongs; a kind may have the name of a
    folder, or of a file without an ending."""
    is_file = "." in kind and os.path.isfile(kind)
    if kind.endswith("/") or is_file or ("/" in kind and os.path.exists(kind)):
        others = f"--jsonl {jsonl}" if jsonl else " ".join(map(shlex.quote, files))
        given = f"evervec add doc {shlex.quote(kind)} {others}".rstrip()
        raise click.UsageError(f"the first argument is the kind, not a path: `{given}`")


def _forgotten(kind: str) -> str:
    """A hint if a path was given where the kind belongs."""
    if not os.path.exists(kind):
        return ""
    return f". To add '{kind}', name a kind first: `evervec add doc {shlex.quote(kind)}`"


def summary(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


@command("sync", "evervec sync docs/ --watch")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option("--kind", help="Kind of its records.  [that of its files so far, else doc]")
@click.option(
    "--root", metavar="FOLDER", help="Ids are paths below this folder.  [the folder that is given]"
)
@click.option("--no-ignore", is_flag=True, help="Also files that .gitignore excludes.")
@click.option("--watch", is_flag=True, help="Keep running and watch for changes.")
@click.option("--every", default=1.0, show_default=True, help="Seconds between two scans.")
def sync(where: Where, folder: str, kind: str | None, root: str | None, no_ignore: bool, watch: bool,
         every: float, as_json: bool) -> int:  # fmt: skip
    """Sync a folder: changed, renamed and deleted files, once or continuously.

    A renamed file keeps its vectors. With --watch, each changed file is named, and each that
    cannot be read.
    """
    from evervec.cli.files import CHANGED, COUNTED, FileRecords, kind_of_folder
    from evervec.cli.own_files import own_files
    from evervec.files.folder import snapshot

    before: Any = None
    skipped: list[str] = []

    def scan(ev: Evervec) -> int:
        """Sync what changed since the last scan; returns how many records failed."""
        nonlocal before, skipped
        now = snapshot(folder, ignored=no_ignore, own=own_files(ev))
        if now == before:
            return 0
        counts = dict.fromkeys(COUNTED, 0)
        names = _Names()
        told = names.ignore if before is None else names.add
        of = kind or kind_of_folder(ev, folder)
        syncing = FileRecords(ev, of, counts, quiet=as_json or before is not None, told=told)
        syncing.add((folder,), root, sync=True, ignored=no_ignore)
        failed = embed(ev, quiet=as_json or before is not None)
        is_first, before = before is None, now
        if not (is_first or as_json):
            for line in syncing.skipped():
                if line not in skipped:
                    say(line, err=True)
        skipped = syncing.skipped()
        if is_first or failed or any(counts[what] for what in CHANGED):
            if not as_json:
                names.say()
            show(as_json, {**counts, "failed": failed}, summary(counts) or "no files")
        return failed

    with where.opened(make=True, **_ALONE) as ev:
        if not watch:
            failed = scan(ev)
            if not as_json:
                stats = ev.queue.stats()
                _say_what_waits(ev, stats.pending, failed)
                say_what_others_hold(ev, stats.processing)
            return 1 if failed else 0
        try:
            with interrupted_by_signals() as stopped:
                scan(ev)
                if not as_json:
                    say(f"watching {folder}; stop with Ctrl-C", err=True)
                while not stopped.wait(every):
                    scan(ev)
            return 0
        except KeyboardInterrupt:  # what was saved is kept; the next sync goes on
            return 0


class _Names:
    """The files that changed since the last scan."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, what: str, id: str) -> None:
        if what != "unchanged":
            self._lines.append(f"{what:9} {id}")

    def ignore(self, what: str, id: str) -> None: ...

    def say(self) -> None:
        for line in self._lines[:_NAMED]:
            say(line)
        if len(self._lines) > _NAMED:
            say(f"and {len(self._lines) - _NAMED} more")


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


def _say_what_waits(ev: Evervec, waiting: int, failed: int) -> None:
    if failed:
        say(f"{failed} failed; see `evervec jobs --status failed`", err=True)
    waits = f"{counted(waiting, 'record')} {'waits' if waiting == 1 else 'wait'}"
    found = f"text search finds {'it' if waiting == 1 else 'them'} already"
    if waiting and ev.embedder.dimensions == 0:
        say(
            f"{waits} for an embedder; {found}. "
            + embedder_advice(ev, f"Install one: {install_command('evervec[local]')}")
        )
    elif waiting and (why := ev.provider.pauses_because()):
        say(
            f"{waits} to be embedded ({why}); {found}. Run `evervec worker` later to embed what waits"
        )
    elif waiting:
        say(f"{waits} to be embedded; `evervec worker --drain` embeds what is due")


@command("get", "evervec get doc README.md")
@click.argument("kind")
@click.argument("id")
def get(where: Where, kind: str, id: str, as_json: bool) -> None:
    """Show a record."""
    with where.opened() as ev:
        record = ev.get(kind, id)
    if record is None:
        raise EvervecError(f"{kind} {id!r} does not exist: {_list_hint(kind)}")
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


def _list_hint(kind: str) -> str:
    return f"`evervec list {shlex.quote(kind)}` lists those that do"


@command("list", "evervec list doc --filter type=md -n 20")
@click.argument("kind", required=False)
@click.option("-n", "limit", default=50, show_default=True, help="Number of records.")
@click.option("--filter", "filters", multiple=True, metavar="FIELD=VALUE", help="By metadata.")
@click.option("--not-embedded", is_flag=True, help="Only records without current vectors.")
@click.option("--after", help="Only ids after this one, to continue a list; needs KIND.")
def list_(where: Where, kind: str | None, limit: int, filters: tuple[str, ...],
          not_embedded: bool, after: str | None, as_json: bool) -> None:  # fmt: skip
    """List records by kind and id."""
    from evervec.cli.search import read_filters, unknown_kinds

    if after is not None and kind is None:
        raise click.UsageError("--after needs KIND: ids are ordered within a kind")
    place = None if after is None or kind is None else (kind, after)
    with where.opened() as ev:
        found = ev.records(
            kind, embedded=False if not_embedded else None, filter=read_filters(filters),
            after=place, limit=limit,
        )  # fmt: skip
        known = ev.kinds() if not found else {}
    if as_json:
        print_json(found)
        return
    for record in found:
        state = "" if record.embedded else "  (not embedded yet)"
        title = f"  {record.title}" if record.title else ""
        say(f"{record.kind} {record.id}{title}{state}")
    if not found and kind is not None and (unknown := unknown_kinds(known, (kind,))):
        say(unknown)
    elif not found:
        say("no records")
    elif len(found) == limit:
        last = found[-1]
        say(f"more: evervec list {shlex.quote(last.kind)} --after {shlex.quote(last.id)}", err=True)


@command("delete", "evervec delete doc README.md")
@click.argument("kind")
@click.argument("ids", nargs=-1, required=True)
@click.option("--version", type=int, help="Only if the record version is older than this.")
def delete(
    where: Where, kind: str, ids: tuple[str, ...], version: int | None, as_json: bool
) -> int:
    """Delete records; searches no longer return them."""
    with where.opened() as ev:
        tickets = [ev.delete(kind, id, version=version) for id in ids]
        for ticket in tickets:
            if ticket.accepted:
                write_audit(ev, "record.delete", f"{kind}/{ticket.id}")
        ev.process_all()
    missing = [ticket.id for ticket in tickets if not ticket.accepted]
    show(as_json, tickets, f"deleted {len(tickets) - len(missing)}")
    for id in missing:
        newer = "" if version is None else f", or its version is not older than {version}"
        say(f"evervec: {kind} {id!r} does not exist{newer}: {_list_hint(kind)}", err=True)
    return 1 if missing else 0
