"""What stands beside evervec in the growth benchmark: engines called directly, and Chroma.

Each takes the same texts, vectors and fields, in batches of 256, and is indexed as its
documentation says. None of them keeps a queue, guards against late writes, or notices that a
record changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from benchmarks.growth_data import FILTERS, Corpus, Vectors
from benchmarks.growth_ways import Ask, K, Way, postgres, used

_BATCH = 256
_COMMITS = 32
_ANN_ROWS = 50_000
Rows = list[dict[str, Any]]


class Peer:
    """An engine, by three functions."""

    def __init__(
        self,
        corpus: Corpus,
        put: Callable[[Rows, Vectors], object],
        ask: Callable[[Vectors, Sequence[str]], list[str]],
        settle: Callable[[int], object],
        disk: Callable[[], int],
        server: int | None = None,
    ) -> None:
        self._corpus = corpus
        self._put = put
        self._settle = settle
        self._count = 0
        self.disk = disk
        self._server = server
        self.modes: Mapping[str, Ask] = {
            mode: partial(self._asked, ask, shelves)
            for mode, shelves in {"semantic": (), **FILTERS}.items()
        }

    def _asked(
        self, ask: Callable[[Vectors, Sequence[str]], list[str]], shelves: Sequence[str], query: int
    ) -> list[str]:
        return ask(self._corpus.query_vectors[query], shelves)

    def load(self, first: int, end: int) -> None:
        for begin in range(first, end, _BATCH):
            numbers = range(begin, min(begin + _BATCH, end))
            rows = list(self._corpus.records(numbers.start, numbers.stop))
            self._put(rows, self._corpus.vectors(numbers))
        self._count = end

    def settle(self) -> None:
        self._settle(self._count)

    def server(self) -> int | None:
        return self._server


@contextmanager
def lancedb(corpus: Corpus, folder: Path) -> Iterator[Way]:
    import lancedb as lance
    import pyarrow as pa
    from lancedb.index import Bitmap, IvfSq

    size = corpus.query_vectors.shape[1]
    shape = pa.schema([("id", pa.string()), ("text", pa.string()), ("shelf", pa.string()),
                       ("vector", pa.list_(pa.float32(), size))])  # fmt: skip
    table = lance.connect(folder).create_table("notes", schema=shape)
    table.create_index("shelf", config=Bitmap())
    commits = 0

    def put(rows: Rows, vectors: Vectors) -> None:
        nonlocal commits
        flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), size)
        shelves = [row["metadata"]["shelf"] for row in rows]
        columns = [[row["id"] for row in rows], [row["text"] for row in rows], shelves, flat]
        table.add(pa.table(columns, schema=shape))
        commits += 1
        if commits % _COMMITS == 0:
            table.optimize(cleanup_older_than=timedelta(milliseconds=1))

    def ask(vector: Vectors, shelves: Sequence[str]) -> list[str]:
        query = table.search(vector).distance_type("cosine").refine_factor(4)
        if shelves:
            wanted = ", ".join(map(repr, shelves))
            query = query.where(f"shelf in ({wanted})", prefilter=True)
        return list(query.select(["id", "_distance"]).limit(K).to_arrow().column("id").to_pylist())

    def settle(count: int) -> None:
        if count >= _ANN_ROWS:
            table.create_index("vector", config=IvfSq(distance_type="cosine"))
        table.optimize(cleanup_older_than=timedelta(milliseconds=1))

    yield Peer(corpus, put, ask, settle, lambda: used(folder))


@contextmanager
def qdrant(corpus: Corpus, folder: Path) -> Iterator[Way]:
    import qdrant_edge as edge

    size = corpus.query_vectors.shape[1]
    config = edge.EdgeConfig(
        vectors=edge.EdgeVectorParams(size=size, distance=edge.Distance.Cosine),
        hnsw_config=edge.HnswIndexConfig(m=16, ef_construct=128, full_scan_threshold=10000),
    )
    shard = edge.EdgeShard.create(str(folder), config)
    kind: Any = edge.PayloadSchemaType.Keyword
    shard.update(edge.UpdateOperation.create_field_index("shelf", kind))

    def put(rows: Rows, vectors: Vectors) -> None:
        points: list[Any] = [
            edge.Point(int(row["id"]), vector.data, {"text": row["text"], **row["metadata"]})
            for row, vector in zip(rows, vectors, strict=True)
        ]
        shard.update(edge.UpdateOperation.upsert_points(points))

    def ask(vector: Vectors, shelves: Sequence[str]) -> list[str]:
        one: Any = edge.FieldCondition("shelf", match=edge.MatchAny(list(shelves)))
        where = edge.Filter(must=[one]) if shelves else None
        nearest: Any = edge.Query.Nearest(vector.tolist())
        request = edge.QueryRequest(K, query=nearest, filter=where, with_payload=["shelf"])
        return [str(point.id) for point in shard.query(request)]

    def settle(_: int) -> None:
        shard.optimize()

    yield Peer(corpus, put, ask, settle, lambda: used(folder))
    shard.close()


@contextmanager
def pgvector(corpus: Corpus, folder: Path) -> Iterator[Way]:
    size = corpus.query_vectors.shape[1]
    with postgres() as (url, disk, pid), psycopg.connect(url, autocommit=True) as conn:
        conn.execute(
            f"create table notes (id bigint primary key, text text, shelf text, "
            f"vector vector({size}))".encode()
        )
        conn.execute("create index on notes (shelf)")

        def put(rows: Rows, vectors: Vectors) -> None:
            with conn.cursor().copy("copy notes from stdin") as copy:
                for row, vector in zip(rows, vectors, strict=True):
                    copy.write_row(
                        (row["id"], row["text"], row["metadata"]["shelf"], _text(vector))
                    )

        def ask(vector: Vectors, shelves: Sequence[str]) -> list[str]:
            where = "where shelf = any(%s) " if shelves else ""
            query = f"select id from notes {where}order by vector <=> %s::vector limit {K}"
            given = [list(shelves)] if shelves else []
            return [str(id) for (id,) in conn.execute(query.encode(), (*given, _text(vector)))]

        def settle(count: int) -> None:
            if count >= _ANN_ROWS:
                conn.execute(
                    "create index if not exists notes_hnsw on notes using hnsw "
                    "(vector vector_cosine_ops) with (m = 16, ef_construction = 128)"
                )
            conn.execute("vacuum analyze notes")

        yield Peer(corpus, put, ask, settle, disk, pid)


def _text(vector: Vectors) -> str:
    return f"[{','.join(map(str, vector.tolist()))}]"


@contextmanager
def chroma(corpus: Corpus, folder: Path) -> Iterator[Way]:
    import chromadb
    from chromadb.config import Settings

    client = chromadb.PersistentClient(str(folder), settings=Settings(anonymized_telemetry=False))
    notes = client.create_collection(
        "notes", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
    )

    def put(rows: Rows, vectors: Vectors) -> None:
        notes.add(
            ids=[row["id"] for row in rows],
            embeddings=vectors,
            documents=[row["text"] for row in rows],
            metadatas=[row["metadata"] for row in rows],
        )

    def ask(vector: Vectors, shelves: Sequence[str]) -> list[str]:
        where: Any = {"shelf": {"$in": list(shelves)}} if shelves else None
        found = notes.query(query_embeddings=vector[np.newaxis], n_results=K, where=where)
        return list(found["ids"][0])

    yield Peer(corpus, put, ask, lambda _: None, lambda: used(folder))
