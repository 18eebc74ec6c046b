"""An application with a table of its own, in a database that it shares with evervec."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from support import postgres

ARTICLES = (
    "create table articles (id integer primary key, title text, body text, author text, "
    "rank real, team text, seen integer)"
)


class App:
    """The application's own connection; it knows nothing of evervec."""

    def __init__(self, engine: str, folder: Path) -> None:
        self.engine = engine
        self.url = str(folder / "app.db") if engine == "sqlite" else postgres.DATABASES.borrow()
        self.conn: Any = (
            sqlite3.connect(self.url, isolation_level=None)
            if engine == "sqlite"
            else psycopg.connect(self.url, autocommit=True)
        )
        self.execute(ARTICLES)

    def close(self) -> None:
        self.conn.close()
        if self.engine == "postgres":
            postgres.DATABASES.give_back(self.url)

    def execute(self, query: str, values: Sequence[Any] = ()) -> Any:
        if self.engine == "postgres":
            query = query.replace("?", "%s")
        return self.conn.execute(query, values)

    def executemany(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        for row in rows:
            self.execute(query, row)

    def logged(self) -> int:
        count: int = self.execute(f"select count(*) from {self.table('changes')}").fetchone()[0]
        return count

    def table(self, name: str) -> str:
        return f"evervec_{name}" if self.engine == "sqlite" else f"evervec.{name}"

    def triggers(self) -> list[str]:
        query = (
            "select name from sqlite_schema where type = 'trigger' and tbl_name not like 'evervec%'"
            if self.engine == "sqlite"
            else "select tgname from pg_trigger where tgrelid = 'articles'::regclass and not tgisinternal"
        )
        return [name for (name,) in self.execute(query).fetchall()]

    def drop_trigger(self, name: str) -> None:
        on = "" if self.engine == "sqlite" else " on articles"
        self.execute(f"drop trigger {name}{on}")
