"""The invariants, checked from outside: by `verify`, by search, and in the tables themselves."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

import evervec
from evervec.chunking import chunk
from evervec.embedders.hashing import HashingEmbedder
from evervec.embedding.registry import chunker_for
from evervec.stores.ledger import unpack_chunks
from support import postgres
from support.places import Place, integrity, is_written, kind_of, query, vector_of
from support.process_worker import DIMENSIONS
from support.processes import Child, until
from support.world import held


def open_store(place: Place, **settings: Any) -> evervec.Evervec:
    """The store that children of `process_worker` work on."""
    return evervec.open(place, **{"embedder": HashingEmbedder(DIMENSIONS), **settings})


def settle(ev: evervec.Evervec) -> None:
    """Work until nothing waits and nobody works, taking over what others left behind."""

    def settled() -> bool:
        ev.process_all()
        stats = ev.queue.stats()
        return stats.pending == stats.processing == 0

    until(settled, "the queue to be empty")


def freeze(child: Child, place: Place) -> None:
    """Stop it where it is, but not while its heartbeat has locks that all others would wait for."""

    def at_rest() -> bool:
        child.freeze()
        if is_written(place):
            child.thaw()
            return False
        return True

    until(at_rest, "a moment without a transaction")


def outcomes(ev: evervec.Evervec, id: str) -> list[str]:
    """How the attempts at a record ended, oldest first."""
    return [str(attempt.outcome) for attempt in ev.queue.history("note", id)]


def assert_true_to(ev: evervec.Evervec, path: Place, notes: Mapping[str, str]) -> None:
    """Records, ledger and index hold exactly these notes, each once, and nothing else."""
    stats = ev.queue.stats()
    assert (stats.pending, stats.processing) == (0, 0)
    report = ev.verify()
    assert report.clean, report
    assert report.checked == len(notes)
    assert integrity(path) == "ok"
    if kind_of(path) == "postgres":
        postgres.assert_none_is_astray(str(path))
    _assert_records(path, notes)
    chunker = chunker_for(ev.embedder, ev.settings.chunk_tokens)
    if ev.index.shares_store:
        _assert_points(ev, path, notes)
    else:
        hashes = {id: {c.hash for c in chunk(chunker, None, text)[0]} for id, text in notes.items()}
        assert held(ev) == {("default", "note", id): sorted(h) for id, h in hashes.items()}
    for id, text in notes.items():
        for piece in chunk(chunker, None, text)[1]:
            # a few, because words may share a place in the vectors
            hits = {hit.id: hit for hit in ev.search(piece, k=5, mode="semantic")}
            assert id in hits, f"{id} is not found by its own text"
            assert (hits[id].text, round(hits[id].similarity or 0, 3)) == (piece, 1.0)


def _assert_records(path: Place, notes: Mapping[str, str]) -> None:
    live = "select id, text from evervec_records where state = 'live'"
    assert dict(query(path, live)) == dict(notes)
    doubled = (
        "select record, version from evervec_jobs group by record, version having count(*) > 1"
    )
    assert query(path, doubled) == []


def _assert_points(ev: evervec.Evervec, path: Place, notes: Mapping[str, str]) -> None:
    """The points of each note are its latest chunks, with the vectors of those."""
    points: dict[str, dict[bytes, Any]] = defaultdict(dict)
    held = """select r.id, p.hash, p.vector, p.seq >= r.seq from evervec_points as p
              join evervec_records as r on r.record = p.record where p.vector is not null"""
    for id, hash, vector, current in query(path, held):
        assert current, f"a point of {id} is of an older version"
        assert hash not in points[id], f"a chunk of {id} is in the index twice"
        points[id][hash] = vector
    count = "select count(*) from evervec_points where vector is not null"
    assert query(path, count) == [(sum(map(len, points.values())),)], "points without a record"
    assert points.keys() == notes.keys()
    ledger = """select r.id, l.chunks from evervec_ledger as l
                join evervec_records as r on r.record = l.record"""
    entries = dict(query(path, ledger))
    assert entries.keys() == notes.keys()
    chunker = chunker_for(ev.embedder, ev.settings.chunk_tokens)
    for id, text in notes.items():
        chunks, texts = chunk(chunker, None, text)
        assert points[id].keys() == {piece.hash for piece in chunks}, f"the chunks of {id}"
        assert list(unpack_chunks(entries[id])) == chunks
        right = HashingEmbedder(DIMENSIONS).embed(texts)
        for piece, vector in zip(chunks, right, strict=True):
            stored = vector_of(points[id][piece.hash])
            np.testing.assert_allclose(stored, vector, atol=1e-5)
