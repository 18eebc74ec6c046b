"""Reads named SQL queries from `.sql` files.

A file is a sequence of blocks, each headed by `-- name: the_name`. A store's queries are split by
subject (`PARTS`). `sql/` has those that stores share. An engine's folder has those that only this
engine has, and those that replace a shared one, with a comment that says why.

Queries may be written in a neutral form that each engine converts to its dialect:

- tables are named `evervec_…`, and parameters `$1`;
- `evervec_current_jobs` are the jobs with their leases, which an engine may keep elsewhere;
- `in list($1)` is a list of numbers, `in texts($1)` a list of texts;
- `rows($2 id text, seq bigint) as n` are rows with these columns, one parameter for each column
  from `$2` on; `{job_row}` stands for the columns in the block of that name;
- `listed rows(…)` are many rows of texts at once, where an engine else runs a statement for each;
- `for update …` locks rows, in engines with concurrent writers;
- `cross join … on` fixes the order of a join for a planner without statistics;
- `octets(text)` is the length of a text in bytes;
- `strpos(text, part)` is the place of a part in a text, 0 if it is not there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

PARTS = ("records", "jobs", "claims", "versions", "shared", "service", "streams", "history")
Dialect = Callable[[str], str]
"""Converts a query to an engine's dialect."""

_ROWS = r"rows\(\$(\d+)\s+([^()]+)\) as (\w+)"
FOR_UPDATE = re.compile(r"\nfor update( of \w+)?( skip locked)?")
_ROW = re.compile(r"{(\w+_row)}")


class Column(NamedTuple):
    """A column of `rows(…)`."""

    parameter: str
    name: str
    type: str


def expand_rows(
    query: str, write: Callable[[Sequence[Column], str], str], before: str = "(?:listed )?"
) -> str:
    """Replace `rows(…) as n` by what `write` makes of its columns and `n`; `before`: the word before
    it, which is replaced too."""

    def written(found: re.Match[str]) -> str:
        first, given, name = found.groups()
        columns = [
            Column(f"${place}", *column.split())
            for place, column in enumerate(given.split(","), int(first))
        ]
        return write(columns, name)

    return re.sub(before + _ROWS, written, query)


class Queries:
    """The named blocks of some files, as attributes: `queries.claim`."""

    def __init__(self, blocks: Mapping[str, str]) -> None:
        vars(self).update(blocks)

    @classmethod
    def read(cls, package: str, *names: str, dialect: Dialect = str) -> Queries:
        """The blocks of files, in an engine's dialect; a block replaces one of the same name in an
        earlier file."""
        return cls._read([(package, name) for name in names], dialect)

    @classmethod
    def of_store(cls, package: str, dialect: Dialect) -> Queries:
        """The shared queries and the engine's own, in the engine's dialect."""
        folders = ("evervec.stores.sql", package)
        names = [(folder, f"{part}.sql") for folder in folders for part in PARTS]
        return cls._read([(f, n) for f, n in names if files(f).joinpath(n).is_file()], dialect)

    @classmethod
    def _read(cls, where: Sequence[tuple[str, str]], dialect: Dialect) -> Queries:
        blocks: dict[str, str] = {}
        for package, name in where:
            blocks |= _blocks(files(package).joinpath(name).read_text("utf-8"))
        rows = {name: re.sub(r"^--.*\n", "", text) for name, text in blocks.items()}
        return cls(
            {
                name: dialect(_ROW.sub(lambda found: rows[found[1]], text))
                for name, text in blocks.items()
            }
        )

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"no query named {name!r}")


def _blocks(text: str) -> dict[str, str]:
    parts = re.split(r"^-- name: *(\w+) *$", text, flags=re.MULTILINE)
    return {key: body.strip() for key, body in zip(parts[1::2], parts[2::2], strict=True)}
