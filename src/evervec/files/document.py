"""What is read from a file: its title and text, or the reason why it cannot be read."""

from __future__ import annotations

from dataclasses import dataclass

from evervec.runtime.packages import install_command

LONGEST_TITLE = 200
_FIRST_LINE = 100
"""characters of a first line that may be a title"""


class Unreadable(Exception):
    """A file that cannot be read as text; the message is the reason, in a few words."""


class NeedsPackage(Unreadable):
    """A file of a format whose reader is not installed."""

    def __init__(self, extra: str) -> None:
        super().__init__(f"needs a package: {install_command(f'evervec[{extra}]')}")
        self.extra = extra


@dataclass(frozen=True, slots=True)
class Document:
    """The text of a file, with its title if it has one."""

    text: str
    title: str | None = None
    lines: tuple[tuple[int, int], ...] = ()
    """offsets in the text and the line of the file at each, for a text that is not the file's own"""


def short_title(title: str | None) -> str | None:
    """A title in one line; None if it is empty or too long to be one."""
    line = " ".join((title or "").split())
    return line if line and len(line) <= LONGEST_TITLE else None


def first_line(text: str) -> str | None:
    """The first line of a plain text, if it stands alone and reads like a title."""
    line, _, rest = text.lstrip().partition("\n")
    line = line.strip()
    alone = not rest.partition("\n")[0].strip()
    if (
        not alone
        or not rest.strip()
        or len(line) > _FIRST_LINE
        or line.endswith((".", ",", ";", ":"))
    ):
        return None
    return short_title(line) if any(map(str.isalpha, line)) else None
