"""A made-up step behind the latest schema, to test upgrades before there is a real one."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass

from evervec.stores.sql.schema import Schema

PREFIXES = {"sqlite": "evervec_", "duckdb": "evervec_", "postgres": "evervec."}
STATEMENTS = 6


@dataclass(frozen=True)
class NextSchema(Schema):
    """The schema with one step more, which adds tables and columns and copies records."""

    prefix: str = ""

    def statements(self, number: int) -> Iterator[str]:
        if number < self.latest:
            yield from super().statements(number)
            return
        p = self.prefix
        yield f"create table {p}copies (record bigint, text varchar)"
        yield f"insert into {p}copies select record, text from {p}records"
        yield f"alter table {p}notes add column made_up varchar"
        yield f"insert into {p}meta (key, value) values ('made up', 1)"
        yield f"update {p}notes set made_up = 'before'"
        yield f"create table {p}made_up (number bigint)"


def next_schema(engine: str) -> NextSchema:
    """The engine's schema, and the made-up step."""
    now: Schema = importlib.import_module(f"evervec.stores.{engine}.schema").SCHEMA
    return NextSchema(**vars(now) | {"latest": now.latest + 1, "prefix": PREFIXES[engine]})
