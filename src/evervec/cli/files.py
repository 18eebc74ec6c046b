"""Adds files as records, and keeps the records of folders in sync with them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evervec.cli.output import Progress, progress, say
from evervec.cli.own_files import own_files
from evervec.errors import InvalidArgument, InvalidRecord
from evervec.files.document import NeedsPackage, Unreadable
from evervec.files.folder import Folder, Found, Source, find, same_id
from evervec.files.formats import NOT_TEXT, Readers, type_of
from evervec.files.places import written_lines
from evervec.model.phrases import counted
from evervec.records.drafts import LONGEST_ID
from evervec.runtime.packages import install_command
from evervec.stores.notes import FOLDERS

if TYPE_CHECKING:
    from evervec.facade import Evervec
    from evervec.model.records import ChunkVector, Record

COUNTED = ("added", "updated", "moved", "unchanged", "deleted", "skipped")
CHANGED = frozenset(COUNTED) - {"unchanged", "skipped"}
_AT_ONCE = 200
"""files saved in one transaction, at most"""
_CHARACTERS = 4_000_000
"""of the texts saved in one transaction, roughly"""
_NAMED = 20
"""skipped files that are named, at most"""


def known_folders(ev: Evervec, kind: str) -> dict[str, Folder]:
    """The folders of a kind's files, by name."""
    noted = FOLDERS.of(kind, ev.tenant).get(ev.store.shared) or {}
    return {name: Folder(**folder) for name, folder in noted.items()}


def kind_of_folder(ev: Evervec, folder: str) -> str:
    """The kind of the files of a folder that were added before: `sync` after `add note notes/` must
    not add them all again as another kind. `doc` if there are none."""
    given = Path(folder).resolve()
    kinds = [
        kind
        for kind in ev.kinds()
        if any(
            given.is_relative_to(known.path) or Path(known.path).is_relative_to(given)
            for known in known_folders(ev, kind).values()
        )
    ]
    if len(kinds) > 1:
        raise InvalidArgument(
            f"files of '{folder}' are records of the kinds {', '.join(kinds)}: name one with --kind"
        )
    return kinds[0] if kinds else "doc"


class FileRecords:
    """Adds files as records of a kind. `told` is called with what became of each file and its id; of
    a moved file with both ids."""

    def __init__(
        self,
        ev: Evervec,
        kind: str,
        counts: dict[str, int],
        *,
        quiet: bool,
        told: Callable[[str, str], object] = lambda what, id: None,
    ) -> None:
        self._ev = ev
        self._kind = kind
        self._counts = counts
        self._quiet = quiet
        self._told = told
        self._skipped = _Skipped()

    def add(self, named: Sequence[str], root: str | None = None, *, sync: bool = False,
            ignored: bool = False) -> None:  # fmt: skip
        """Save the given files and folders; with `sync`, delete the records of files that are gone
        from the folders. A file that has another id now keeps its vectors."""
        before = known_folders(self._ev, self._kind)
        found = find(named, before, root, ignored=ignored, own=own_files(self._ev))
        if len(found.folders) > 1:
            self._check_owners(found)
        stored = self._stored(found) if found.scopes and (sync or before) else {}
        gone = stored.keys() - found.sources.keys()
        moves = _Moves(self._ev, self._kind, stored, gone)
        kept: set[str] = set()
        with Readers() as readers, progress("saving", len(found.sources), quiet=self._quiet) as bar:
            records = self._records(found, readers, kept, bar)
            for group in _groups(records):
                for record in group:
                    moves.give_vectors(record)
                for ticket in self._ev.add_many(self._kind, group):
                    kept.add(ticket.id)
                    old = moves.made.get(ticket.id) if sync else None
                    new = "added" if old is None else "moved"
                    what = new if ticket.is_new else "updated"
                    name = ticket.id if what != "moved" else f"{old} → {ticket.id}"
                    self._count(what if ticket.enqueued else "unchanged", name)
                    bar.advance()
                if found.folders != before:
                    self._note(found.folders)
                    before = found.folders
        if not self._quiet:
            for line in self.skipped():
                say(line, err=True)
        if not sync:
            self._say_gone(len(gone))
            return
        for id in stored.keys() - kept:
            self._ev.delete(self._kind, id)
            if id not in moves.made.values():
                self._count("deleted", id)

    def skipped(self) -> list[str]:
        """Sentences that say which files were skipped, and why."""
        return list(self._skipped.lines())

    def _say_gone(self, count: int) -> None:
        if count and not self._quiet:
            say(
                f"{counted(count, 'record')} of these folders: the file was deleted or moved. "
                "Run the command with --sync to delete such records",
                err=True,
            )

    def _count(self, what: str, id: str) -> None:
        self._counts[what] += 1
        self._told(what, id)

    def _records(
        self, found: Found, readers: Readers, kept: set[str], bar: Progress
    ) -> Iterator[dict[str, Any]]:
        """The records of the files that can be read. A file that cannot be read now, although it is
        there, keeps its record."""
        for source in found.sources.values():
            try:
                yield self._record(source, readers)
            except (Unreadable, OSError) as error:
                self._counts["skipped"] += 1
                self._skipped.add(source, error)
                bar.advance()
                if isinstance(error, OSError | NeedsPackage):
                    kept.add(source.id)

    def _record(self, source: Source, readers: Readers) -> dict[str, Any]:
        if source.is_double:
            raise _Double
        kind = type_of(source.path)
        if kind in NOT_TEXT:
            raise _NotText(kind)
        if source.leads_out():
            raise Unreadable("a link to something outside the folder")
        _check_id(source.id)
        document, changed = readers.read(source.path)
        text = _storable(document.text)
        if len(text) > self._ev.settings.text_chars:
            raise Unreadable(
                f"it has more text than a record may have (setting text_chars: {len(text):,})"
            )
        metadata = {"path": source.id, "folder": source.folder, "type": kind}
        if document.lines:
            metadata["lines"] = written_lines(document.lines)
        return {
            "id": source.id,
            "text": text,
            "title": _storable(document.title) if document.title else None,
            "metadata": metadata,
            "updated_at": changed,
        }

    def _stored(self, found: Found) -> dict[str, bytes]:
        """Id and digest of the records of files in the given folders."""
        stored = {}
        for record in _pages(self._ev, self._kind):
            folder = record.metadata.get("folder")
            if "path" in record.metadata and any(s.has(folder, record.id) for s in found.scopes):
                stored[record.id] = _digest(record.title, record.text)
        return stored

    def _check_owners(self, found: Found) -> None:
        """Refuse a file whose id is that of another file, which was added from another folder."""
        for source in found.sources.values():
            record = self._ev.get(self._kind, source.id)
            owner = found.folders.get(str(record.metadata.get("folder"))) if record else None
            if owner is None or record is None or record.metadata.get("folder") == source.folder:
                continue
            other = Path(owner.path, source.id)
            if other != source.path and other.is_file():
                raise InvalidArgument(same_id(other, source.path, source.id))

    def _note(self, folders: dict[str, Folder]) -> None:
        noted = {name: asdict(folder) for name, folder in folders.items()}
        FOLDERS.of(self._kind, self._ev.tenant).put(self._ev.store.shared, noted)


class _Moves:
    """Files that have another id now: their vectors are taken over, not made again."""

    def __init__(self, ev: Evervec, kind: str, stored: dict[str, bytes], gone: set[str]) -> None:
        self._ev = ev
        self._kind = kind
        self._stored = stored
        self._gone: defaultdict[bytes, list[str]] = defaultdict(list)
        for id in gone:
            self._gone[stored[id]].append(id)
        self.made: dict[str, str] = {}
        """the old id by the new one"""

    def give_vectors(self, record: dict[str, Any]) -> None:
        """Add the vectors of the record that has the same title and text, if its file is gone."""
        if not self._gone or record["id"] in self._stored:
            return
        same = self._gone.get(_digest(record["title"], record["text"]))
        if not same:
            return
        old = self.made[record["id"]] = same.pop()
        model = next((v.name for v in self._ev.versions()
                      if (v.kind, v.state) == (self._kind, "serving")), None)  # fmt: skip
        found = self._vectors_of(old, record)
        if not found or model is None:
            return  # not embedded yet, or edited since
        options = {name: part for name, part in record.items() if name != "text"}
        options["vectors"] = {"model": model, "vectors": [chunk.vector for chunk in found]}
        try:
            self._ev.draft(self._kind, record["text"], options)
        except InvalidRecord:  # the chunks are cut in another way now
            return
        record["vectors"] = options["vectors"]

    def _vectors_of(self, old: str, record: dict[str, Any]) -> list[ChunkVector]:
        """The vectors of the old record, if they are of this text: others may change it at any
        time, also between two reads."""
        before = self._ev.get(self._kind, old)
        found = self._ev.vectors(self._kind, [old]).get(old, [])
        now = self._ev.get(self._kind, old)
        if before is None or now is None or before.seq != now.seq:
            return []
        same = _digest(now.title, now.text) == _digest(record["title"], record["text"])
        return found if same and all(chunk.start is not None for chunk in found) else []


class _NotText(Unreadable):
    """A file that is known by its name to hold no text."""


class _Double(Unreadable):
    """A link to a file that is added itself."""


class _Skipped:
    """The files that were skipped: those of a common reason are summed up."""

    def __init__(self) -> None:
        self._types: Counter[str] = Counter()
        self._extras: Counter[str] = Counter()
        self._empty = self._doubles = 0
        self._others: list[str] = []

    def add(self, source: Source, error: Exception) -> None:
        if isinstance(error, _NotText):
            self._types[str(error)] += 1
        elif isinstance(error, NeedsPackage):
            self._extras[error.extra] += 1
        elif str(error) == "empty":
            self._empty += 1
        elif isinstance(error, _Double):
            self._doubles += 1
        else:
            self._others.append(f"skipped {_short(source.path)}: {_reason(source.path, error)}")

    def lines(self) -> Iterator[str]:
        yield from self._others[:_NAMED]
        if (more := len(self._others) - _NAMED) > 0:
            yield f"skipped {counted(more, 'more file')} that cannot be read"
        if self._types:
            listed = ", ".join(f"{count} {kind}" for kind, count in self._types.most_common())
            yield f"skipped {counted(self._types.total(), 'file')} without text ({listed})"
        for extra, count in self._extras.items():
            advice = (
                f"{install_command(f'evervec[{extra}]')} to read {'it' if count == 1 else 'them'}"
            )
            yield f"skipped {counted(count, f'{extra.upper()} file')}: {advice}"
        if self._empty:
            yield f"skipped {counted(self._empty, 'empty file')}"
        if self._doubles:
            one = self._doubles == 1
            yield f"skipped {counted(self._doubles, 'link')} to {'a file' if one else 'files'} of the same folder"


def _reason(path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        return "a link to a file that does not exist"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _short(path: Path) -> Path:
    """A path as it is shown: below the working directory, if it is there."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _check_id(id: str) -> None:
    try:
        size = len(id.encode())
    except UnicodeEncodeError:
        raise Unreadable("its name is not UTF-8: rename it") from None
    if size > LONGEST_ID:
        raise Unreadable(f"its path is longer than {LONGEST_ID} bytes")


def _storable(text: str) -> str:
    """A text without what no store accepts: NUL, and halves of characters, as JSON may have."""
    if "\0" in text:
        text = text.replace("\0", "")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def _digest(title: str | None, text: str) -> bytes:
    return blake2b(f"{title or ''}\0{text}".encode(), digest_size=16).digest()


def _groups(records: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Records that are saved together: few enough that little is lost by a kill."""
    group: list[dict[str, Any]] = []
    size = 0
    for record in records:
        group.append(record)
        size += len(record["text"])
        if len(group) == _AT_ONCE or size >= _CHARACTERS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _pages(ev: Evervec, kind: str) -> Iterator[Record]:
    after: Record | None = None
    while page := ev.records(kind, after=after, limit=500):
        yield from page
        after = page[-1]
