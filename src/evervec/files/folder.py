"""Finds files and gives each its id: the path below the folder that was given.

Paths are resolved first, so that an id does not depend on the working directory or on how the folder was
written. The folders of a kind are remembered with a name for each: a file that is in one of them keeps its
id, also if it is given by itself or by a folder inside or above.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from evervec.errors import InvalidArgument
from evervec.files.ignore import Ignores

SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of which the ids of a kind's records are paths."""

    path: str
    whole: bool
    """it was given itself; False: only files in it were, so that folders in it are not part of it"""


@dataclass(frozen=True, slots=True)
class Source:
    """A file to add, with its record id."""

    path: Path
    id: str
    folder: str
    """name of the folder of which the id is a path"""
    inside: Path | None = None
    """the given folder in which the file was found; None if the file itself was given"""
    is_double: bool = False
    """it is a link to a file that was found too"""

    def leads_out(self) -> bool:
        """Whether it is a link to something outside the folder in which it was found."""
        if self.inside is None or not self.path.is_symlink():
            return False
        return not Path(os.path.realpath(self.path)).is_relative_to(self.inside)


@dataclass(frozen=True, slots=True)
class Scope:
    """The records of a folder, or of a part of it: those whose file would be there."""

    folder: str
    prefix: str

    def has(self, folder: object, id: str) -> bool:
        return folder == self.folder and id.startswith(self.prefix)


@dataclass
class Found:
    """The files that were found, and where they are."""

    sources: dict[str, Source] = field(default_factory=dict)
    """by id"""
    folders: dict[str, Folder] = field(default_factory=dict)
    """by name, those known before and new ones"""
    scopes: list[Scope] = field(default_factory=list)
    """what the given folders cover"""


def find(
    named: Sequence[str],
    known: Mapping[str, Folder],
    root: str | None = None,
    *,
    ignored: bool = False,
    own: Collection[str] = (),
) -> Found:
    """The files that are given by path, folder or glob. `known`: the folders of the kind by name;
    `root`: the folder of which ids are paths, instead of those given; `ignored`: also files that
    a .gitignore excludes; `own`: paths in folders that are left out."""
    found = Found(folders=dict(known))
    above = _folder(root) if root is not None else None
    for given in named:
        base, paths = _expand(given)
        for path in paths:
            if path.is_dir():
                inside = path.resolve()
                files: Iterator[Path] = walk(inside, ignored=ignored, own=own)
                _check_inside(inside, above, given)
                home, whole = above or _home(inside, found.folders) or inside, True
            elif path.is_file():
                inside = None
                place = path.parent.resolve()
                files = iter([place / path.name])
                _check_inside(place / path.name, above, given)
                home = above or _home(place, found.folders) or (base or place)
                whole = above is not None
            else:
                raise InvalidArgument(f"file or folder '{path}' does not exist")
            name = _name(home, found.folders, whole=whole)
            if inside is not None:
                found.scopes += _scopes(inside, found.folders, above)
            for file in files:
                _add(found, file, home, name, inside, fixed=above is not None)
    _mark_doubles(found.sources)
    return found


def walk(folder: Path, *, ignored: bool = False, own: Collection[str] = ()) -> Iterator[Path]:
    """The files in a folder, without hidden ones, those that a .gitignore excludes, and the paths in
    `own`."""
    rules = {str(folder): Ignores() if ignored else Ignores.around(folder)}
    for here, folders, names in os.walk(folder):
        around = rules.pop(here)
        kept = []
        for name in sorted(folders):
            if name in SKIPPED_FOLDERS or name[0] == "." or around.excludes(name, is_folder=True):
                continue
            path = os.path.join(here, name)
            if path in own:
                continue
            kept.append(name)
            if not os.path.islink(path):
                rules[path] = Ignores() if ignored else around.inside(name, Path(path))
        folders[:] = kept
        for name in sorted(names):
            if name[0] == "." or around.excludes(name, is_folder=False):
                continue
            if os.path.join(here, name) not in own:
                yield Path(here, name)


def snapshot(
    folder: str, *, ignored: bool = False, own: Collection[str] = ()
) -> dict[str, tuple[int, int]]:
    """Size and modification time of every file in a folder, to detect changes."""
    seen = {}
    for path in walk(Path(folder).resolve(), ignored=ignored, own=own):
        try:
            stat = path.stat()
        except OSError:  # deleted since it was listed
            continue
        seen[str(path)] = (stat.st_size, stat.st_mtime_ns)
    return seen


def _expand(given: str) -> tuple[Path | None, list[Path]]:
    """The paths that an argument names, and the folder above a glob's first wildcard."""
    if not glob.has_magic(given) or os.path.lexists(given):
        return None, [Path(given)]
    paths = [Path(name) for name in sorted(glob.glob(given, recursive=True))]
    if not paths:
        raise InvalidArgument(f"no file matches '{given}'")
    fixed: list[str] = []
    for part in Path(given).parts:
        if glob.has_magic(part):
            break
        fixed.append(part)
    return Path(*fixed).resolve(), [path for path in paths if path.is_file()] or paths


def _folder(root: str) -> Path:
    path = Path(root)
    if not path.is_dir():
        raise InvalidArgument(f"--root {root}: there is no such folder")
    return path.resolve()


def _check_inside(path: Path, above: Path | None, given: str) -> None:
    if above is not None and not path.is_relative_to(above):
        raise InvalidArgument(f"'{given}' is not inside --root {above}")


def _home(path: Path, folders: Mapping[str, Folder]) -> Path | None:
    """The innermost known folder that has the path."""
    homes = [
        Path(known.path)
        for known in folders.values()
        if known.whole and path.is_relative_to(known.path)
    ]
    return max(homes, key=lambda home: len(home.parts), default=None)


def _name(home: Path, folders: dict[str, Folder], *, whole: bool) -> str:
    """The name of a folder, which is new if the folder is. A known folder that is gone from where it
    was is taken to be the one of the same name: moved, or on another machine."""
    name, number = next((n for n, f in folders.items() if f.path == str(home)), ""), 1
    if not name:
        name = base = home.name.encode(errors="replace").decode()[:_LONGEST_NAME] or "root"
        while name in folders and os.path.isdir(folders[name].path):
            number += 1
            name = f"{base}-{number}"
    before = folders.get(name)
    folders[name] = Folder(str(home), whole or (before is not None and before.whole))
    return name


def _scopes(inside: Path, folders: Mapping[str, Folder], above: Path | None) -> Iterator[Scope]:
    """What a given folder covers of the known folders."""
    for name, folder in folders.items():
        path = Path(folder.path)
        if path.is_relative_to(inside):
            yield Scope(name, "")
        elif inside.is_relative_to(path) and (path == above if above else folder.whole):
            yield Scope(name, f"{inside.relative_to(path).as_posix()}/")


def _add(
    found: Found, file: Path, home: Path, name: str, inside: Path | None, *, fixed: bool
) -> None:
    nearer = None if fixed else _home(file.parent, found.folders)
    if nearer is not None and nearer != home:
        home, name = nearer, _name(nearer, found.folders, whole=True)
    id = file.relative_to(home).as_posix()
    source = Source(file, id, name, inside)
    other = found.sources.setdefault(id, source)
    if other is not source and other.path != file:
        raise InvalidArgument(same_id(other.path, file, id))


def _mark_doubles(sources: dict[str, Source]) -> None:
    """Mark the links in folders that lead to files which are found themselves, and of several links
    to another file in the folder, such as a hidden one, all but the first."""
    links = [s for s in sources.values() if s.inside is not None and os.path.islink(s.path)]
    if not links:
        return
    files = {str(s.path) for s in sources.values()}
    for link in links:
        target = os.path.realpath(link.path)
        if link.leads_out() or not os.path.exists(target):
            continue
        if target in files:
            sources[link.id] = replace(link, is_double=True)
        files.add(target)


def same_id(one: Path, other: Path, id: str) -> str:
    """What to do about two files of the same id."""
    common = os.path.commonpath([one, other])
    return (
        f"'{one}' and '{other}' would both have the id '{id}': give a folder above both with "
        f"--root, such as --root '{common}', or add them as different kinds"
    )
