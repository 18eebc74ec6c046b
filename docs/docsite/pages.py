"""The Markdown of the site: what `docs/` holds, and what is made from the code.

The navigation in `docs/zensical.toml` is the only list of pages. Links to files outside `docs/`
lead to the repository; pictures outside `docs/` are taken along.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from docsite import reference

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIG = DOCS / "zensical.toml"
_REPOSITORY = "https://github.com/evervec/evervec"
_LINK = re.compile(
    r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<path>[^)#\s]+)(?P<rest>[^)]*)\)"
)
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_MADE = re.compile(r"^<!-- made from the code: (?P<name>[\w-]+) -->$", re.MULTILINE)
_PICTURES = {".svg", ".png"}


class SiteError(Exception):
    """The site cannot be built; the message says what is wrong."""


@dataclass(frozen=True)
class Page:
    """A page of the site; `path` is relative to the site, such as `reference/errors.md`."""

    path: str
    section: str
    text: str

    @property
    def title(self) -> str:
        found = re.search(r"^# (.+)$", self.text, re.MULTILINE)
        if found is None:
            raise SiteError(f"{self.path} has no title: begin it with '# Title'")
        return found[1]

    @property
    def summary(self) -> str:
        """The first sentence, for lists of pages."""
        _, _, body = self.text.partition("\n# " if not self.text.startswith("# ") else "# ")
        paragraphs = _FENCE.sub("", body).split("\n\n")[1:]
        first = next((p for p in paragraphs if p[:1].isalnum() or p[:1] in "*`["), "")
        plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", first.replace("**", "")).replace("\n", " ")
        return re.split(r"(?<=[.!?])\s", plain, maxsplit=1)[0].rstrip(":")


def navigation() -> Iterator[tuple[str, str]]:
    """The section and path of each page, in order."""
    entries: list[Any] = tomllib.loads(CONFIG.read_text("utf-8"))["project"]["nav"]
    for entry in entries:
        if isinstance(entry, str):
            yield "", entry
        else:
            for section, paths in entry.items():
                yield from ((section, path) for path in paths)


def gather() -> tuple[list[Page], Mapping[str, Path]]:
    """All pages in the order of the navigation, and the pictures from outside `docs/`, by their
    name in the site."""
    pictures: dict[str, Path] = {}
    pages = [Page(path, section, _text(path, pictures)) for section, path in navigation()]
    return pages, pictures


@cache
def made(name: str) -> str:
    """What a reference page, or a part of one, says; made once per process."""
    if name not in reference.MAKERS:
        known = ", ".join(reference.MAKERS)
        raise SiteError(f"nothing makes {name!r} from the code; choose one of {known}")
    return reference.MAKERS[name]()


def _text(path: str, pictures: dict[str, Path]) -> str:
    source = DOCS / path
    name = path.removeprefix("reference/").removesuffix(".md")
    if path.startswith("reference/") and not source.exists():
        return made(name)
    if not source.exists():
        raise SiteError(f"nav in {CONFIG.name} lists {path}, which is not in docs/")
    text = _MADE.sub(lambda found: made(found["name"]), source.read_text("utf-8"))
    parts, end = [], 0
    for block in _FENCE.finditer(text):  # links in code are not links
        parts += [_relinked(text[end : block.start()], source, pictures), block[0]]
        end = block.end()
    return "".join([*parts, _relinked(text[end:], source, pictures)])


def _relinked(text: str, source: Path, pictures: dict[str, Path]) -> str:
    def relink(found: re.Match[str]) -> str:
        target = (source.parent / found["path"]).resolve()
        if target.is_relative_to(DOCS) or not target.is_relative_to(ROOT):
            return found[0]
        if found["image"] and target.suffix in _PICTURES:
            pictures[target.name] = target
            where = "../" * (len(source.relative_to(DOCS).parts) - 1)
            return f"![{found['text']}]({where}pictures/{target.name})"
        inside = target.relative_to(ROOT).as_posix()
        view = "tree" if target.is_dir() else "blob"
        return f"[{found['text']}]({_REPOSITORY}/{view}/main/{inside}{found['rest']})"

    return _LINK.sub(relink, text)
