"""Evervec on each store and index, as the growth benchmark loads and asks it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import psycopg

import evervec
from benchmarks.growth_data import FILTERS, Corpus, Prepared
from benchmarks.postgres_server import database, server

K = 10
Ask = Callable[[int], list[str]]
"""the ids found for a query, by its number"""
_BUILDERS = ("evervec-hnsw", "evervec-optimize", "evervec-fields")


class Way(Protocol):
    """A way to keep records and to search them."""

    modes: Mapping[str, Ask]

    def load(self, first: int, end: int) -> None:
        """Add records that are not there yet, until they can be searched by vector."""

    def settle(self) -> None:
        """What its housekeeping would do in the next minutes: index builds and the like."""

    def disk(self) -> int:
        """Bytes."""
        ...

    def server(self) -> int | None:
        """The main process of its server; None: it has none."""
        ...


class Evervec:
    """Evervec in this process."""

    def __init__(self, corpus: Corpus, store: str, index: str | None, disk: Callable[[], int],
                 server: int | None = None) -> None:  # fmt: skip
        self._corpus = corpus
        self._ev = evervec.open(store, index=index, embedder=Prepared(corpus))
        self._ev.register(evervec.Kind("abstract", index_fields=["shelf"]))
        self.disk = disk
        self._server = server
        self.modes: Mapping[str, Ask] = {
            "semantic": self._asks("semantic"),
            **{name: self._asks("semantic", shelves) for name, shelves in FILTERS.items()},
            "text": self._asks("text"),
            "hybrid": self._asks("hybrid"),
        }

    def _asks(self, mode: str, shelves: Sequence[str] = ()) -> Ask:
        filter = {"shelf": list(shelves)} if shelves else None

        def ask(number: int) -> list[str]:
            query = self._corpus.queries[number]
            return [hit.id for hit in self._ev.search(query, K, mode=mode, filter=filter)]

        return ask

    def load(self, first: int, end: int) -> None:
        for _ in self._ev.add_many("abstract", self._corpus.records(first, end)):
            pass
        done = self._ev.process_all().succeeded
        assert done == end - first, f"{done} of {end - first} were embedded"

    def settle(self) -> None:
        for _ in range(2):  # an index that is being filled waits for a second look
            self._ev.index.maintain(0.0)
        for thread in threading.enumerate():
            if thread.name in _BUILDERS:
                thread.join()

    def server(self) -> int | None:
        return self._server

    def close(self) -> None:
        self._ev.close()


@contextmanager
def evervec_on(corpus: Corpus, folder: Path, store: str, index: str | None) -> Iterator[Way]:
    """`store` and `index`: URLs, in which {} is the folder."""
    way = Evervec(
        corpus, store.format(folder), index and index.format(folder), lambda: used(folder)
    )
    try:
        yield way
    finally:
        way.close()


@contextmanager
def evervec_on_postgres(corpus: Corpus, folder: Path) -> Iterator[Way]:
    with postgres() as (url, size, pid):
        way = Evervec(corpus, url, None, size, pid)
        try:
            yield way
        finally:
            way.close()


@contextmanager
def postgres() -> Iterator[tuple[str, Callable[[], int], int]]:
    """A database with nothing in it: its URL, its size, and the server's main process."""
    with server() as place, database(place) as url, psycopg.connect(url, autocommit=True) as conn:
        conn.execute("create extension if not exists vector")

        def size() -> int:
            (found,) = conn.execute("select pg_database_size(current_database())").fetchone() or (
                0,
            )
            return int(found)

        yield url, size, parent(conn.info.backend_pid)


def parent(process: int) -> int:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])


def used(folder: Path) -> int:
    """Bytes on disk: some files have holes."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
