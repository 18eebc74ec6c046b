"""Which files a folder's .gitignore files exclude, by the rules of Git."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_LARGEST = 1 << 20
_ESCAPED = re.compile(r"\\(.)")
_STARS = re.compile(r"(\\.)|\*+")


@dataclass(frozen=True, slots=True)
class _Rule:
    """A line of a .gitignore, for paths below its folder."""

    parts: tuple[re.Pattern[str] | None, ...]
    """for each part of a path; None stands for any number of parts"""
    excludes: bool
    folders_only: bool

    def fits(self, path: Sequence[str], *, is_folder: bool) -> bool:
        if self.folders_only and not is_folder:
            return False
        if len(self.parts) == 2 and self.parts[0] is None and self.parts[1] is not None:
            return self.parts[1].match(path[-1]) is not None  # a bare name, as most rules are
        return self._fits(path)

    def _fits(self, path: Sequence[str]) -> bool:
        """Whether the parts fit all of the path; in steps of one part, so never exponential."""
        reached = {0}  # how much of the path the parts so far can stand for
        for number, part in enumerate(self.parts):
            if part is not None:
                reached = {at + 1 for at in reached if at < len(path) and part.match(path[at])}
            elif reached:
                # at the end it stands for what is inside a folder: at least one part
                least = min(reached) + (number == len(self.parts) - 1)
                reached = set(range(least, len(path) + 1))
        return len(path) in reached


@dataclass(frozen=True, slots=True)
class Ignores:
    """The rules that hold in a folder: those of its own .gitignore and of the folders above."""

    _folder: tuple[str, ...] = ()
    """of this folder, below that of the outermost rules"""
    _rules: tuple[tuple[int, _Rule], ...] = field(default=())
    """each with how many parts of `_folder` are above the .gitignore that it is from"""

    @classmethod
    def around(cls, folder: Path) -> Ignores:
        """The rules that hold in a folder, from the top of its Git repository, if it is in one."""
        above = [folder, *folder.parents]
        top = next((n for n, place in enumerate(above) if (place / ".git").exists()), 0)
        found = cls()._read(above[top])
        for place in reversed(above[:top]):
            found = found.inside(place.name, place)
        return found

    def inside(self, name: str, folder: Path) -> Ignores:
        """The rules in a folder directly inside this one."""
        return Ignores((*self._folder, name), self._rules)._read(folder)

    def excludes(self, name: str, *, is_folder: bool) -> bool:
        """Whether a file or folder directly inside this folder is excluded: the last rule that
        fits decides."""
        path = (*self._folder, name)
        for above, rule in reversed(self._rules):
            if rule.fits(path[above:], is_folder=is_folder):
                return rule.excludes
        return False

    def _read(self, folder: Path) -> Ignores:
        file = folder / ".gitignore"
        try:
            if not file.is_file() or file.stat().st_size > _LARGEST:
                return self
            text = file.read_bytes().decode("utf-8-sig", "replace")
        except OSError:
            return self
        rules = [rule for line in text.split("\n") if (rule := _rule(line.removesuffix("\r")))]
        return Ignores(self._folder, self._rules + tuple((len(self._folder), r) for r in rules))


def _rule(line: str) -> _Rule | None:
    if line.startswith("#"):
        return None
    line = _without_trailing_blanks(line)
    excludes = not line.startswith("!")
    line = line.removeprefix("!")
    folders_only = line.endswith("/")
    line = line.rstrip("/") if folders_only else line
    if not line:
        return None
    names = line.removeprefix("/").split("/")
    anchored = line.startswith("/") or len(names) > 1
    parts: list[re.Pattern[str] | None] = [] if anchored else [None]
    for name in names:
        made = None if name == "**" else _pattern(name)
        if made is not None or parts[-1:] != [None]:
            parts.append(made)
    return _Rule(tuple(parts), excludes, folders_only)


def _pattern(name: str) -> re.Pattern[str]:
    """The pattern of one name. `fnmatch` writes it so that many stars do not multiply the time."""
    glob = _ESCAPED.sub(_literal, _STARS.sub(_one_star, name.replace("[^", "[!")))
    return re.compile(fnmatch.translate(glob))


def _without_trailing_blanks(line: str) -> str:
    """A blank behind a backslash is part of the name."""
    bare = line.rstrip(" \t")
    return line[: len(bare) + 1] if bare.endswith("\\") else bare


def _one_star(found: re.Match[str]) -> str:
    return found[1] or "*"


def _literal(escaped: re.Match[str]) -> str:
    sign = escaped[1]
    return f"[{sign}]" if sign in "*?[" else sign
