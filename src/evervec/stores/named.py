"""SQL kept in `.sql` files, found by name.

A file is a row of blocks, each headed by `-- name: the_name`. A store's queries are parted by subject
(`PARTS`). Those that all stores share are in `sql/`, in a form that each engine turns into its own:
tables are named `evervec_…`, parameters `$1`, and `in list($1)` stands for a list of numbers. An
engine's folder holds those that differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.resources import files

PARTS = ("records", "jobs", "claims", "versions", "shared", "service")
Dialect = Callable[[str], str]
"""Turns the shared queries into those of an engine."""


class Queries:
    """The named blocks of one file: `queries["claim"]`, or as an attribute."""

    def __init__(self, blocks: Mapping[str, str]) -> None:
        self._blocks = dict(blocks)
        vars(self).update(blocks)  # found at once, as searches look for them

    @classmethod
    def read(cls, package: str, name: str) -> Queries:
        return cls(_blocks(_text(package, name)))

    @classmethod
    def of_store(cls, package: str, dialect: Dialect) -> Queries:
        """The queries that all stores share, in an engine's dialect, and its own."""
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
