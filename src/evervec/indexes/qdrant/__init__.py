"""Vectors in Qdrant; each point is guarded by its seq.

A point is identified by its record and chunk, and has the seq of its record's last change. A
removed record keeps a point without a vector, a tombstone, whose seq stops late writes.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from typing import Any, TypeVar

from evervec.errors import IndexUnavailable, WrongCollection
from evervec.indexes.base import (
    Copy,
    Held,
    Match,
    Matches,
    Query,
    StoredVector,
    Stray,
    by_version,
    similarities_of,
)
from evervec.indexes.fields import declared
from evervec.indexes.qdrant.engine import (
    FIELD_INDEXES,
    PAYLOAD_INDEXES,
    CollectionGone,
    Engine,
    Found,
    Known,
    Nearest,
    Shape,
    Stored,
)
from evervec.indexes.qdrant.filters import path_of, pushed_down, says_it_all
from evervec.indexes.qdrant.writer import PointWriter, point_id
from evervec.indexes.separate import Collections, folded
from evervec.model.filters import Conditions, matches
from evervec.model.records import Change, ModelSpec
from evervec.model.reports import IndexBuild
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.values import Applied, Collection

T = TypeVar("T")

log = logging.getLogger("evervec")

_AT_ONCE = 1000
_ROUNDS = 10
_KNOWN_BY = ("record", "tenant", "hash", "seq")
_HELD = (*_KNOWN_BY, "text", "metadata")
_OF_VERSION = ("version", "tenant", "record")


class QdrantIndex:
    """Any number of writers; the tenant is part of every search."""

    shares_store = False
    generation = 0

    def __init__(self, engine: Engine, store: Store, settings: Settings) -> None:
        self.url = engine.url
        self._engine = engine
        self._store = store
        self._writing = PointWriter(engine, store.now)
        self._collections = Collections(store)
        self._name = settings.qdrant_collection
        self._settings = settings
        self._ready: dict[str, int] = {}
        """known collections with their dimensions; 0: not checked yet"""
        self._closed = False

    # writing
    def apply(self, changes: Sequence[Change], conn: Any = None) -> Applied:
        applied = Applied()
        for version, group in by_version(changes):
            applied.add(self._apply(version, folded(group)))
        return applied

    def _apply(self, version: int, changes: list[Change]) -> Applied:
        def write(name: str) -> Applied:
            return self._writing.write(name, version, changes)

        with self._engine.writing():
            return self._on(version, write, Applied(), make=True)

    def refuses(self, kind: str, spec: ModelSpec) -> str | None:
        name = self._name_of(spec)
        for c in self._collections.all():
            if c.state == "retired" or c.spec is None or self._name_of(c.spec) != name:
                continue
            if c.spec.dimensions != spec.dimensions:
                return (
                    f"qdrant_collection is {self._name!r} for every version, and a collection "
                    f"holds vectors of one size: {c.spec.name!r} has {c.spec.dimensions} "
                    f"dimensions, {spec.name!r} has {spec.dimensions}. Put {{version}} into "
                    "qdrant_collection and run `evervec verify --repair`, or choose a model of "
                    "the same size"
                )
        if not self._engine.has(name):
            return None
        return self._misfit(name, spec, self._engine.known(name))

    # searching
    def search(self, query: Query) -> Matches:
        engine = self._engine
        where = engine.all(
            engine.equals("tenant", query.tenant),
            engine.any_of("version", [query.version]),
            *pushed_down(engine, query.conditions),
        )
        again = () if says_it_all(query.conditions) else query.conditions
        fields = ("record", "hash", *(["metadata"] if again else []))
        wanted = query.chunks
        while True:
            points = self._nearest(query.version, Nearest(query.vector, where, fields, wanted))
            found = Matches.best_first(_good(points, again), query.limit)
            if len(found) >= query.limit or len(points) < wanted:
                return found
            wanted *= 4

    def similarities(self, query: Query, records: Sequence[int]) -> dict[int, float]:
        return similarities_of(self.vectors(query.version, records), query.vector)

    def vectors(self, version: int, records: Sequence[int]) -> dict[int, list[StoredVector]]:
        import numpy as np

        engine, fields = self._engine, ("record", "hash", "position")
        where = engine.all(
            engine.any_of("version", [version]),
            engine.any_of("record", records),
            engine.empty("removed_at"),
        )
        found: dict[int, list[StoredVector]] = defaultdict(list)
        for point in self._all(version, where, fields, vectors=True):
            record, hash, position = _values(point, fields, (0, "", 0))
            if point.vector is not None:
                vector = np.asarray(point.vector, np.float32)
                found[record].append(StoredVector(_hash(hash), position, vector))
        return {record: sorted(points, key=_position) for record, points in found.items()}

    # verify and maintenance
    def held(self, version: int, tenant: str | None, after: int, upto: int | None) -> list[Held]:
        engine = self._engine
        must = [
            engine.any_of("version", [version]),
            engine.between("record", gt=after, lte=upto),
            engine.empty("removed_at"),
        ]
        if tenant is not None:
            must.append(engine.equals("tenant", tenant))
        where, fields = engine.all(*must), _HELD
        points = self._all(version, where, fields)
        return sorted((_held(p) for p in points), key=lambda h: h.record)

    def remove(self, version: int, points: Sequence[Held]) -> int:
        engine = self._engine
        wanted = {p.key: p for p in points}

        def take_out(name: str) -> int:
            by_seq: dict[int, list[str]] = defaultdict(list)
            for point in engine.scroll(name, engine.all(engine.ids(wanted)), _KNOWN_BY):
                if _held(point)[:4] == wanted[point.id][:4]:
                    by_seq[wanted[point.id].seq].append(point.id)
            # a point written between the read and this delete has another seq, and stays
            gone = [
                engine.delete_all(engine.all(engine.ids(ids), *_of_seq(engine, seq)))
                for seq, ids in by_seq.items()
            ]
            for start in range(0, len(gone), _AT_ONCE):
                engine.update(name, gone[start : start + _AT_ONCE])
            return sum(map(len, by_seq.values()))

        if not points:
            return 0
        with engine.writing():
            return self._on(version, take_out, 0)

    def revive(self, version: int, records: Sequence[int]) -> None:
        engine = self._engine
        tombstones = [point_id(version, record, b"") for record in records]
        if records:
            with engine.writing():
                self._on(
                    version, lambda name: engine.update(name, [engine.delete(tombstones)]), None
                )

    def strays(self, known: Set[int], tenant: str | None) -> list[Stray]:
        """Stray points, only in collections with the names of this store's versions: others may
        belong to other applications."""
        engine = self._engine
        mine = [] if tenant is None else [engine.equals("tenant", tenant)]
        other = engine.all(but=[engine.any_of("version", known)])
        strange = engine.either(other, engine.empty("record"))
        where = engine.all(*mine, strange, engine.empty("removed_at"))
        names = {self._collection(c.version): c.version for c in self._collections.all()}
        found: set[tuple[Any, ...]] = set()
        for name, version in names.items():
            for point in self._all(version, where, _OF_VERSION):
                found.add((name, *_values(point, _OF_VERSION, (None, "", None))))
        counts = Counter((name, *whose, record is None) for name, *whose, record in found)
        return [
            Stray(version, owner, count, (name, self._of(version, owner, no_record)))
            for (name, version, owner, no_record), count in counts.items()
        ]

    def _of(self, version: int | None, tenant: str, no_record: bool) -> Any:
        engine = self._engine
        return engine.all(
            engine.empty("version") if version is None else engine.any_of("version", [version]),
            engine.equals("tenant", tenant) if tenant else engine.empty("tenant"),
            *([engine.empty("record")] if no_record else []),
        )

    def drop_strays(self, strays: Sequence[Stray]) -> None:
        for stray in strays:
            name, where = stray.place
            with self._engine.writing(), suppress(CollectionGone):
                self._engine.update(name, [self._engine.delete_all(where)])

    def drop(self, version: int) -> None:
        engine = self._engine
        mine = engine.all(engine.any_of("version", [version]))

        def take_out(name: str) -> None:
            engine.update(name, [engine.delete_all(mine)])
            # other kinds may use the collection too
            if not engine.scroll(name, engine.all(), ("record",), 1):
                engine.drop(name)
                self._ready.pop(name, None)

        with engine.writing():
            self._on(version, take_out, None)

    def maintain(self, before: float) -> None:
        for collection in self._collections.all():
            with self._engine.writing():
                self._on(collection.version, lambda name: self._maintain(name, before), None)

    def _maintain(self, name: str, before: float) -> None:
        engine = self._engine
        old = engine.all(engine.between("removed_at", lt=before))
        for _ in range(_ROUNDS):
            found = engine.scroll(name, old, ("record",), _AT_ONCE)
            if found:
                engine.update(name, [engine.delete([point.id for point in found])])
            if len(found) < _AT_ONCE:
                break
        self._make_indexes(name, engine.known(name))
        engine.maintain(name)

    def builds(self) -> list[IndexBuild]:
        return []

    def is_loaded(self, version: int, tenant: str) -> bool:
        return True

    def close(self) -> None:
        if not self._closed:  # others may use the same engine
            self._closed = True
            self._engine.close()

    def _nearest(self, version: int, asked: Nearest) -> Sequence[Found]:
        return self._on(version, lambda name: self._engine.query(name, asked), [])

    def _all(
        self, version: int, where: Any, fields: Sequence[str], *, vectors: bool = False
    ) -> list[Stored]:
        return self._on(
            version, lambda name: self._engine.scroll(name, where, fields, vectors=vectors), []
        )

    def _on(self, version: int, work: Callable[[str], T], otherwise: T, *, make: bool = False) -> T:
        """Work on the collection of a version, with one retry if it turns out to be gone; returns
        `otherwise` if there is none."""
        for _ in range(2):
            name = self._collection(version, make=make)
            if name is None:
                return otherwise
            try:
                return work(name)
            except CollectionGone:
                self._ready.pop(name, None)
            except IndexUnavailable:
                if make:  # it may have been replaced by another collection
                    self._ready.pop(name, None)
                raise
        raise IndexUnavailable(f"collections in {self.url} disappear right after they are created")

    def table(self, collection: Collection) -> str:
        assert collection.spec is not None
        return self._name_of(collection.spec)

    def _collection(self, version: int, *, make: bool = False) -> str | None:
        """The name of the Qdrant collection with a version's points; None: there is none."""
        known = self._collections.get(version)
        if known is None or known.spec is None:
            return None
        name, size = self.table(known), known.spec.dimensions
        if make and self._ready.get(name) != size:
            options = self._settings
            shape = Shape(
                size, options.qdrant_quantization, options.qdrant_shards, options.qdrant_replicas
            )
            self._engine.ensure(name, shape)
            there = self._engine.known(name)
            if wrong := self._misfit(name, known.spec, there):
                raise WrongCollection(wrong, version=version)
            self._make_indexes(name, there)
            self._ready[name] = size
        elif name not in self._ready:
            if not self._engine.has(name):
                return None
            self._ready[name] = 0
        return name

    def _name_of(self, spec: ModelSpec) -> str:
        return self._name.replace("{version}", spec.name)

    def _make_indexes(self, name: str, there: Known) -> None:
        """Create the payload indexes that a collection lacks, also of fields that were declared
        after it was created. Searches and writes are right without them."""
        if there.indexed is None:
            return
        kinds = [c.kind for c in self._collections.all() if self.table(c) == name]
        wanted = dict(PAYLOAD_INDEXES)
        for field, type in declared(self._store, sorted(kinds)).items():
            if path := path_of(field):
                wanted[path] = FIELD_INDEXES[type]
        try:
            for path, schema in wanted.items():
                if path not in there.indexed:
                    self._engine.make_index(name, path, schema)
        except IndexUnavailable as error:  # the key may lack the right
            log.warning("%r lacks payload indexes, and filters may be slow: %s", name, error)

    def _misfit(self, name: str, spec: ModelSpec, there: Known) -> str | None:
        """Why an existing collection cannot hold a model's vectors."""
        if there.dimensions in (None, spec.dimensions):
            return None
        return (
            f"the collection {name!r} of {self.url} holds vectors of {there.dimensions} "
            "dimensions, but "
            f"{spec.name!r} has {spec.dimensions}: rename or drop that collection, or set "
            "qdrant_collection to another name"
        )


def _good(points: Sequence[Found], conditions: Conditions) -> Iterator[Match]:
    """The points that fit the conditions, checked lazily."""
    for point in points:
        payload = point.payload or {}
        if not conditions or matches(payload["metadata"], conditions):
            yield Match(payload["record"], bytes.fromhex(payload["hash"]), point.score)


def _held(point: Stored) -> Held:
    """A point for `verify`, even if others have changed it: a point without a hash should not
    exist."""
    record, tenant, hash, seq = _values(point, _KNOWN_BY, (0, "", "", 0))
    copy = Copy(*_values(point, ("text", "metadata"), ("", {})))
    # its vector is not checked: Qdrant itself normalises it, and enforces its size
    return Held(record, tenant, _hash(hash), seq, point.id, copy=copy)


def _hash(said: str) -> bytes:
    try:
        return bytes.fromhex(said)
    except ValueError:
        return b""


def _position(point: StoredVector) -> int:
    return point.position


def _of_seq(engine: Engine, seq: int) -> list[Any]:
    # the point may have lost its seq, and a seq beyond a float's precision matches no range
    return [engine.between("seq", gte=seq, lte=seq)] if 0 < seq <= 1 << 53 else []


def _values(point: Stored, fields: Sequence[str], otherwise: tuple[Any, ...]) -> tuple[Any, ...]:
    """Fields of its payload; a default where one is missing, or has another type."""
    return tuple(
        value
        if isinstance(value := point.payload.get(field), type(other)) or other is None
        else other
        for field, other in zip(fields, otherwise, strict=True)
    )
