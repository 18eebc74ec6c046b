"""A table of the application, as its own programs write it."""

import random
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from support.oracle import Key, Wanted
from support.texts import passage


class Table:
    """An application's table, which knows nothing of evervec."""

    kind = "item"

    def __init__(self, url: str, chance: random.Random, tenants: Sequence[str]) -> None:
        self._chance = chance
        self._is_file = not url.startswith("postgresql:")
        self._url = url
        self._tenants = tenants
        self._edition = 0

    def create(self) -> None:
        with self._connected() as conn:
            conn.execute("create table items (id integer primary key, body text, team text)")
            for id in range(20):
                conn.execute(f"insert into items values {self._row(id)}")

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        conn: Any = (
            sqlite3.connect(self._url, isolation_level=None, timeout=60)
            if self._is_file
            else psycopg.connect(self._url, autocommit=True)
        )
        try:
            yield conn
        finally:
            conn.close()

    def _row(self, id: int) -> str:
        self._edition += 1
        edition = self._chance.choice((0, 1, self._edition))  # some texts come back
        return f"({id}, '{passage(f'{id} {edition}')}', '{self._chance.choice(self._tenants)}')"

    def change(self) -> list[str]:
        """One transaction of a few statements: what was done."""
        with self._connected() as conn:
            conn.execute("begin immediate" if self._is_file else "begin")
            done = [self._statement() for _ in range(self._chance.choice((1, 1, 4)))]
            for statement in done:
                conn.execute(statement)
            done.append("rollback" if self._chance.random() < 0.1 else "commit")
            conn.execute(done[-1])
        return done

    def _statement(self) -> str:
        id, dice = self._chance.randrange(20), self._chance.random()
        if dice < 0.5:
            return (
                f"insert into items values {self._row(id)} on conflict (id) do update "
                "set body = excluded.body"
            )
        if dice < 0.65:
            return f"update items set team = '{self._chance.choice(self._tenants)}' where id = {id}"
        if dice < 0.8:
            return f"delete from items where id = {id}"
        if dice < 0.9:
            self._edition += 1
            return f"update items set id = {100 + self._edition} where id = {id}"
        if dice < 0.93:
            return "delete from items" if self._is_file else "truncate items"
        return f"delete from items where id >= 100 or id between {id} and {id + 3}"

    def rows(self) -> dict[Key, Wanted]:
        with self._connected() as conn:
            found = conn.execute("select id, body, team from items").fetchall()
        return {Key(team, self.kind, str(id)): Wanted(body, {}) for id, body, team in found}

    def drop(self) -> None:
        with self._connected() as conn:
            conn.execute("drop table items")
