"""Reads named SQL queries from `.sql` files.

A file is a sequence of blocks, each headed by `-- name: the_name`. A store's queries are split by
subject (`PARTS`). Queries that all stores share are in `sql/`, in a neutral form that each engine
converts to its dialect: tables are named `evervec_…`, parameters `$1`, and `in list($1)` stands for
a list of numbers. An engine's folder holds the queries that differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.resources import files

PARTS = ("records", "jobs", "claims", "versions", "shared", "service")
Dialect = Callable[[str], str]
"""Converts the shared queries to an engine's dialect."""


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
        """The shared queries in an engine's dialect, with the engine's own queries."""
        blocks: dict[str, str] = {}
        for part in PARTS:
            blocks |= _blocks(dialect(_text("evervec.stores.sql", f"{part}.sql")))
            blocks |= _blocks(_text(package, f"{part}.sql"))
        return cls(blocks)

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"no query named {name!r}")

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._blocks.items())


def _text(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text("utf-8")


def _blocks(text: str) -> dict[str, str]:
    parts = re.split(r"^-- name: *(\w+) *$", text, flags=re.MULTILINE)
    return {key: body.strip() for key, body in zip(parts[1::2], parts[2::2], strict=True)}
