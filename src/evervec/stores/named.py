"""Reads named SQL queries from `.sql` files.

A file is a sequence of blocks, each headed by `-- name: the_name`. A store's queries are split by
subject (`PARTS`). `sql/` has those that stores share. An engine's folder has those that only this
engine has, and those that replace a shared one, with a comment that says why.

Queries may be written in a neutral form that each engine converts to its dialect:

- tables are named `evervec_…`, and parameters `$1`;
- `in list($1)` is a list of numbers, `in texts($1)` a list of texts;
- `rows($2 id text, seq bigint) as n` are rows with these columns, one parameter for each column
  from `$2` on; `{job_row}` stands for the columns in the block of that name;
- `cross join … on` fixes the order of a join for a planner without statistics;
- `octets(text)` is the length of a text in bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

PARTS = ("records", "jobs", "claims", "versions", "shared", "service")
Dialect = Callable[[str], str]
"""Converts a query to an engine's dialect."""

_ROWS = re.compile(r"rows\(\$(\d+)\s+([^()]+)\) as (\w+)")
_ROW = re.compile(r"{(\w+_row)}")


class Column(NamedTuple):
    """A column of `rows(…)`."""

    parameter: str
    name: str
    type: str


def expand_rows(query: str, write: Callable[[Sequence[Column], str], str]) -> str:
    """Replace `rows(…) as n` by what `write` makes of its columns and `n`."""

    def written(found: re.Match[str]) -> str:
        first, given, name = found.groups()
        columns = [
            Column(f"${place}", *column.split())
            for place, column in enumerate(given.split(","), int(first))
        ]
        return write(columns, name)

    return _ROWS.sub(written, query)


class Queries:
    """The named blocks of one file: `queries["claim"]`, or as an attribute."""

    def __init__(self, blocks: Mapping[str, str]) -> None:
        self._blocks = dict(blocks)
        vars(self).update(blocks)  # plain attributes: searches look them up often

    @classmethod
    def read(cls, package: str, name: str) -> Queries:
        return cls(_blocks(_text(package, name)))

    @classmethod
    def of_store(cls, package: str, dialect: Dialect) -> Queries:
        """The shared queries and the engine's own, in the engine's dialect."""
        blocks: dict[str, str] = {}
        for folder in ("evervec.stores.sql", package):
            for part in PARTS:
                blocks |= _blocks(_text(folder, f"{part}.sql"))
        rows = {name: re.sub(r"^--.*\n", "", text) for name, text in blocks.items()}
        return cls(
            {
                name: dialect(_ROW.sub(lambda found: rows[found[1]], text))
                for name, text in blocks.items()
            }
        )

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"no query named {name!r}")

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._blocks.items())


def _text(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text("utf-8")


def _blocks(text: str) -> dict[str, str]:
    parts = re.split(r"^-- name: *(\w+) *$", text, flags=re.MULTILINE)
    return {key: body.strip() for key, body in zip(parts[1::2], parts[2::2], strict=True)}
