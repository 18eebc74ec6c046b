"""Jobs that owe more than an embedding: they must first read a row, or open a box.

Each `Owing` is a way in which an application keeps records that appear only once a job has
fetched them. It knows what the application committed last, which is what must appear.
"""

import sqlite3
from abc import ABC, abstractmethod
from typing import Any

import psycopg

from evervec import Evervec, Kind
from support.engines import STORES
from support.oracle import Key, Oracle, Wanted
from support.world import World


class Owing(ABC):
    """Records of one kind. `commit` is the application's own transaction, `tell` what makes a job
    of it; `write` does both."""

    kind: str

    def __init__(self, world: World) -> None:
        self.world = world
        self.oracle = Oracle()
        self.texts: dict[str, str] = {}

    def introduce(self, ev: Evervec) -> Evervec:
        """A handle that can do these jobs."""
        return ev

    def commit(self, id: str, text: str | None) -> None:
        """The application commits a text, or deletes it."""
        if text is None:
            self.texts.pop(id, None)
        else:
            self.texts[id] = text
        key = Key("default", self.kind, id)
        self.oracle.note(key, f"committed: {text!r}")
        wanted = {Key("default", self.kind, i): Wanted(t, {}) for i, t in self.texts.items()}
        self.oracle.rows([("default", self.kind)], wanted)

    @abstractmethod
    def tell(self, ev: Evervec, id: str) -> None:
        """Somebody makes a job of what was committed."""

    def write(self, ev: Evervec, id: str, text: str | None) -> None:
        self.commit(id, text)
        self.tell(ev, id)

    def close(self) -> None:  # noqa: B027 - most have nothing to take away
        """Leave nothing behind in the store's database."""


class Table(Owing):
    """Rows of an attached table."""

    kind = "article"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        url = STORES[world.store_name].url(world.folder)
        self._conn: Any = (
            sqlite3.connect(url, isolation_level=None, timeout=30)
            if world.store_name == "sqlite"
            else psycopg.connect(url, autocommit=True)
        )
        self._conn.execute("create table articles (id text primary key, body text)")
        world.ev.attach("articles", kind=self.kind, text="body")

    def commit(self, id: str, text: str | None) -> None:
        super().commit(id, text)
        mark = "?" if self.world.store_name == "sqlite" else "%s"
        if text is None:
            self._conn.execute(f"delete from articles where id = {mark}", (id,))
            return
        self._conn.execute(
            f"insert into articles values ({mark}, {mark}) "
            "on conflict (id) do update set body = excluded.body",
            (id, text),
        )

    def tell(self, ev: Evervec, id: str) -> None:
        ev.attachments.follow()

    def close(self) -> None:
        self._conn.execute("drop table articles")
        self._conn.close()


class Loader(Owing):
    """Rows that a function of the application fetches."""

    kind = "stone"

    def introduce(self, ev: Evervec) -> Evervec:
        ev.register(Kind(self.kind, load=self.texts.get))
        return ev

    def tell(self, ev: Evervec, id: str) -> None:
        ev.queue.enqueue(self.kind, id)


class Box(Owing):
    """Boxed records."""

    kind = "note"

    def tell(self, ev: Evervec, id: str) -> None:
        if id in self.texts:
            ev.add(self.kind, self.texts[id], id=id, boxed=True)
        else:
            ev.delete(self.kind, id)


OWING: dict[str, type[Owing]] = {"table": Table, "loader": Loader, "box": Box}


def keeps(name: str, store: str) -> bool:
    """Whether records can be kept in this way beside that store."""
    return name != "table" or store in ("sqlite", "postgres")
