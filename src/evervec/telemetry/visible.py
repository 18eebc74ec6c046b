"""Makes text safe to show: control characters are escaped, secrets are removed.

A terminal obeys escape sequences, and a log is read line by line. Whatever a record, a name or a
provider's answer contains, an operator must see its characters, not their effect. URLs are shown
without the secrets that they may contain.
"""

from __future__ import annotations

import logging
import re
import traceback

_LAYOUT = "\n\t"
_UNSAFE = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1 control characters
    r"\u200e\u200f\u202a-\u202e\u2066-\u2069"  # change of the writing direction
    r"\u2028\u2029\ud800-\udfff"  # other line breaks, and half surrogate pairs
)
_IN_TEXT = re.compile(f"[{_UNSAFE}]")
_IN_LINE = re.compile(f"[\\t\\n{_UNSAFE}]")


def visible_line(text: str) -> str:
    """A text on one line, with every control character escaped, such as `\\x1b`."""
    return text if text.isprintable() else _IN_LINE.sub(_written_out, text)


def visible_text(text: str) -> str:
    """The same for a text of several lines: line feeds and tabs stay."""
    return text if text.isprintable() else _IN_TEXT.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode()


class VisibleFilter(logging.Filter):
    """Makes a log record one line, so that a name with a line break cannot forge a second one. The
    lines of a traceback are indented, so that none of them looks like the start of a log line."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if not message.isprintable():
            record.msg, record.args = visible_line(message), ()
        if record.exc_info and not record.exc_text:
            lines = visible_text("".join(traceback.format_exception(*record.exc_info)))
            record.exc_text = lines.rstrip().replace("\n", "\n  ")
        return True


def without_secrets(url: str) -> str:
    """A URL without user, password and query, which may contain keys."""
    scheme, found, rest = url.partition("://")
    if not found:
        before, at, _ = url.partition("@")
        if not at or ":" not in before or "/" in before:
            return url  # a path, or only a host
    place, _, _ = (rest if found else url).partition("?")
    _, at, host = place.rpartition("@")
    return f"{scheme + found if found else ''}{'…@' if at else ''}{host}"


_LOGGERS = (
    "evervec", "evervec.access", "evervec.mcp", "evervec.server", "evervec.server.protocol",
)  # fmt: skip
"""all of evervec's loggers: a filter does not apply to the loggers below it"""


def guard_logs() -> None:
    """Add the filter to evervec's loggers, whatever handlers a program gives them."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(known, VisibleFilter) for known in logger.filters):
            logger.addFilter(VisibleFilter())
