"""Vectors in Qdrant, guarded by seq point by point.

A point is known by its record and chunk, and carries the seq of its record's last change.
Where a record was removed, a point without a vector stays, a tombstone, whose seq stops
what comes late. Qdrant has no transactions: new points come first, what is over goes last,
and where others may write too everything is read back, so that one who was overtaken takes
his own points out again. Where nobody else writes, a new chunk takes the place of one that
is over, which is half the work.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from evervec.errors import IndexUnavailable
from evervec.filters import Condition, matches, parse_filter
from evervec.indexes.base import Copy, Held, Match, Matches, Stray
from evervec.indexes.qdrant.engine import CollectionGone, Engine, Found, Shape, Stored
from evervec.indexes.qdrant.filtering import pushed_down, says_it_all
from evervec.indexes.separate import Collections, folded
from evervec.model import Change
from evervec.settings import Settings
from evervec.stores.base import Store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

_POINTS = uuid.UUID("6b2d9a52-4c1f-4d0e-9a39-0f3f6d1c9e57").bytes
_TRIES = 5
_AT_ONCE = 1000
_ROUNDS = 10
_KNOWN_BY = ("record", "tenant", "hash", "seq")
_HELD = (*_KNOWN_BY, "text", "metadata")
_OF_VERSION = ("version", "tenant", "record")


class _Plan(NamedTuple):
    """What a change does to the points that are there."""

    change: Change
    new: dict[str, tuple[NDArray[np.float32] | None, dict[str, Any]]]
    common: dict[str, Any]
    kept: dict[str, int]
    """positions by id, of those that are there"""
    gone: list[str]
    there: dict[str, Stored]


class QdrantIndex:
    """Any number of writers; the tenant is part of every search."""

    shares_store = False

    def __init__(self, engine: Engine, store: Store, settings: Settings) -> None:
        self.url = engine.url
        self._engine = engine
        self._store = store
        self._collections = Collections(store)
        self._name = settings.qdrant_collection
        self._settings = settings
        self._ready: set[str] = set()
        self._closed = False

    # writing
    def apply(self, changes: Sequence[Change], conn: Any = None) -> None:
        by_version: dict[int, list[Change]] = defaultdict(list)
        for change in changes:
            by_version[change.version].append(change)
        for version, group in sorted(by_version.items()):
            self._apply(version, folded(group))

    def _apply(self, version: int, changes: list[Change]) -> None:
        with self._engine.turn:
            self._on(version, lambda name: self._write(name, version, changes), None, make=True)

    def _write(self, collection: str, version: int, changes: list[Change]) -> None:
        for _ in range(_TRIES):
            plans = self._plan(collection, version, changes)
            if not plans:
                return
            self._engine.update(collection, self._operations(plans))
            if self._engine.alone:
                return
            changes = self._overtaken(collection, version, plans)
            if not changes:
                return
        raise IndexUnavailable(f"{self.url}: {len(changes)} records are written by others too")

    def _plan(self, collection: str, version: int, changes: list[Change]) -> list[_Plan]:
        """How to bring records to what the changes say; nothing for those that are newer."""
        present = self._present(collection, version, changes)
        now = self._store.now()
        plans = []
        for c in changes:
            there = present[c.record]
            if any(point.payload["seq"] > c.seq for point in there.values()):
                continue  # something newer is there, or was removed
            common = _common(c)
            has = {point.payload.get("hash"): id for id, point in there.items()}
            kept = {has[h.hex()]: place for h, place in c.kept.items() if h.hex() in has}
            new: dict[str, Any] = {}
            for id, p in zip(self._ids(version, c, has, kept), c.points, strict=True):
                own = {"hash": p.hash.hex(), "position": p.position, "text": p.text}
                new[id] = (p.vector, common | own)
            if not c.points and not c.kept:
                new[point_id(version, c.record, b"")] = (None, common | {"removed_at": now})
            gone = [id for id in there if id not in new and id not in kept]
            still = {id: place for id, place in kept.items() if id not in new}
            plans.append(_Plan(c, new, common, still, gone, there))
        return plans

    def _ids(
        self, version: int, change: Change, has: Mapping[str | None, str], kept: Iterable[str]
    ) -> list[str]:
        """Of the points that are to have the change's chunks; `has`: those there, by hash."""
        hashes = [p.hash for p in change.points]
        if not self._engine.alone:  # whoever writes the same chunk writes the same point
            return [point_id(version, change.record, h) for h in hashes]
        known = [has.get(h.hex()) for h in hashes]
        taken = {*known, *kept, has.get(None)}  # a tombstone is no place for a chunk
        free = [id for id in has.values() if id not in taken]
        more = (point_id(version, change.record, n.to_bytes(4)) for n in count())
        unused = (id for id in more if id not in has.values())
        return [id or (free.pop() if free else next(unused)) for id in known]

    def _present(
        self, collection: str, version: int, changes: Sequence[Change]
    ) -> dict[int, dict[str, Stored]]:
        engine = self._engine
        where = engine.all(
            engine.any_of("version", [version]),
            engine.any_of("record", [c.record for c in changes]),
        )
        fields = ["record", "seq"]
        if any(c.kept for c in changes):
            fields += ["hash", "position"]
        elif engine.alone:
            fields += ["hash"]
        present: dict[int, dict[str, Stored]] = defaultdict(dict)
        for point in engine.scroll(collection, where, fields):
            present[point.payload["record"]][point.id] = point
        return present

    def _operations(self, plans: list[_Plan]) -> list[Any]:
        """New points first and what is over last, so that a record is never without."""
        engine = self._engine
        first, then, last = [], [], []
        together, gone = [], []
        # a guard that is right for all: what came meanwhile with a seq between is read back,
        # and where nobody comes between, what is there was looked at already
        seqs = [plan.change.seq for plan in plans]
        bound = max(seqs) if engine.alone else min(seqs)
        for plan in plans:
            points = [(id, *content) for id, content in plan.new.items()]
            together += [p for p in points if engine.alone or p[0] not in plan.there]
            again = [p for p in points if not engine.alone and p[0] in plan.there]
            if again:
                first.append(engine.upsert(again, self._not_newer(plan), there=True))
            if plan.kept:
                where = engine.all(engine.ids(plan.kept), self._not_newer(plan))
                then.append(engine.set_payload(plan.common, where))
            for id, place in plan.kept.items():
                if plan.there[id].payload["position"] != place:
                    where = engine.all(engine.ids([id]), self._not_newer(plan))
                    then.append(engine.set_payload({"position": place}, where))
            over = [id for id in plan.gone if plan.there[id].payload["seq"] <= bound]
            gone += over
            if len(over) < len(plan.gone):
                last.append(engine.delete(plan.gone, self._not_newer(plan)))
        if gone:
            last.append(engine.delete(gone, engine.between("seq", lte=bound)))
        if together:
            first.append(engine.upsert(together, engine.between("seq", lte=bound), there=False))
        return first + then + last

    def _not_newer(self, plan: _Plan) -> Any:
        return self._engine.between("seq", lte=plan.change.seq)

    def _overtaken(self, collection: str, version: int, plans: list[_Plan]) -> list[Change]:
        """What must be written again. Where somebody newer was faster, what was put beside
        his points is taken out."""
        engine = self._engine
        present = self._present(collection, version, [plan.change for plan in plans])
        again, stale = [], []
        for plan in plans:
            seq, there = plan.change.seq, present[plan.change.record]
            if any(point.payload["seq"] > seq for point in there.values()):
                mine = [i for i in plan.new if i not in plan.there or not engine.only_updates()]
                as_written = engine.between("seq", gte=seq, lte=seq)
                stale.append(engine.delete(mine, as_written))
            elif any(
                id not in there or there[id].payload["seq"] != seq for id in (*plan.new, *plan.kept)
            ):
                again.append(plan.change)
        if stale:
            engine.update(collection, stale)
        return again

    # searching
    def search(
        self,
        version: int,
        tenant: str,
        vector: NDArray[np.float32],
        limit: int,
        filter: Mapping[str, Any] | None = None,
        mark: int | None = None,
    ) -> Matches:
        engine, conditions = self._engine, parse_filter(filter)
        must, but = pushed_down(engine, conditions)
        where = engine.all(
            engine.equals("tenant", tenant), engine.any_of("version", [version]), *must, but=but
        )
        again = () if says_it_all(conditions) else conditions
        fields = ("record", "hash", *(["metadata"] if again else []))
        wanted = 2 * limit + 8  # a record may be found by several of its chunks
        while True:
            points = self._nearest(version, vector, where, fields, wanted)
            found = Matches.best_first(_good(points, again), limit)
            if len(found) >= limit or len(points) < wanted:
                return found
            wanted *= 4

    # verify and care
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
            # what is written between the look and this has another seq, and stays
            gone = [engine.delete(ids, *_of_seq(engine, seq)) for seq, ids in by_seq.items()]
            for start in range(0, len(gone), _AT_ONCE):
                engine.update(name, gone[start : start + _AT_ONCE])
            return sum(map(len, by_seq.values()))

        return self._on(version, take_out, 0) if points else 0

    def revive(self, version: int, records: Sequence[int]) -> None:
        engine = self._engine
        tombstones = [point_id(version, record, b"") for record in records]
        if records:
            self._on(version, lambda name: engine.update(name, [engine.delete(tombstones)]), None)

    def strays(self, known: Set[int], tenant: str | None) -> list[Stray]:
        """In collections that bear the names of this store's versions: others may be anyone's."""
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
            self._engine.update(name, [self._engine.delete_all(where)])

    def drop(self, version: int) -> None:
        engine = self._engine
        mine = engine.all(engine.any_of("version", [version]))

        def take_out(name: str) -> None:
            engine.update(name, [engine.delete_all(mine)])
            if not engine.scroll(name, engine.all(), ("record",), 1):  # other kinds may have it too
                engine.drop(name)
                self._ready.discard(name)

        self._on(version, take_out, None)

    def tend(self, before: float) -> None:
        for collection in self._collections.all():
            self._on(collection.version, lambda name: self._tend(name, before), None)

    def _tend(self, name: str, before: float) -> None:
        engine = self._engine
        old = engine.all(engine.between("removed_at", lt=before))
        for _ in range(_ROUNDS):
            found = engine.scroll(name, old, ("record",), _AT_ONCE)
            if found:
                engine.update(name, [engine.delete([point.id for point in found])])
            if len(found) < _AT_ONCE:
                break
        engine.tend(name)

    def close(self) -> None:
        if not self._closed:  # others may use the same engine
            self._closed = True
            self._engine.close()

    def _nearest(self, version: int, *asked: Any) -> Sequence[Found]:
        return self._on(version, lambda name: self._engine.query(name, *asked), [])

    def _all(self, version: int, where: Any, fields: Sequence[str]) -> list[Stored]:
        return self._on(version, lambda name: self._engine.scroll(name, where, fields), [])

    def _on(self, version: int, work: Callable[[str], T], otherwise: T, *, make: bool = False) -> T:
        """Work on the collection of a version, looked for once more if it turns out to be gone;
        `otherwise` where there is none."""
        for _ in range(2):
            name = self._collection(version, make=make)
            if name is None:
                return otherwise
            try:
                return work(name)
            except CollectionGone:
                self._ready.discard(name)
        raise IndexUnavailable(f"{self.url} loses its collections as they are made")

    def _collection(self, version: int, *, make: bool = False) -> str | None:
        """The name of the Qdrant collection that has a version's points; None: there is none."""
        known = self._collections.get(version)
        if known is None or known.spec is None:
            return None
        name = self._name.replace("{version}", known.spec.name)
        if name not in self._ready:
            if make:
                options = self._settings
                self._engine.ensure(
                    name,
                    Shape(
                        known.spec.dimensions, options.qdrant_quantization,
                        options.qdrant_shards, options.qdrant_replicas,
                    ),
                )  # fmt: skip
            elif not self._engine.has(name):
                return None
            self._ready.add(name)
        return name


def point_id(version: int, record: int, hash: bytes) -> str:
    """The same for the same chunk of a record, whoever writes it; the tombstone's has no hash."""
    # a UUID of version 5, written down directly: there is one for each point of each batch
    said = hashlib.sha1(_POINTS + f"{version}/{record}/{hash.hex()}".encode()).hexdigest()
    variant = "89ab"[int(said[16], 16) & 3]
    return f"{said[:8]}-{said[8:12]}-5{said[13:16]}-{variant}{said[17:20]}-{said[20:32]}"


def _common(change: Change) -> dict[str, Any]:
    """What all points of a record carry."""
    return {
        "tenant": change.tenant,
        "kind": change.kind,
        "version": change.version,
        "record": change.record,
        "id": change.id,
        "seq": change.seq,
        "metadata": dict(change.metadata),
        "weight": change.weight,
        "updated_at": change.updated_at,
    }


def _good(points: Sequence[Found], conditions: Sequence[Condition]) -> Iterator[Match]:
    """Those that fit the conditions, each looked at when it is asked for."""
    for point in points:
        payload = point.payload or {}
        if not conditions or matches(payload["metadata"], conditions):
            yield Match(payload["record"], bytes.fromhex(payload["hash"]), point.score)


def _held(point: Stored) -> Held:
    """Whatever others did to it: a point without its hash is one that should not be there."""
    record, tenant, hash, seq = _values(point, _KNOWN_BY, (0, "", "", 0))
    try:
        known = bytes.fromhex(hash)
    except ValueError:
        known = b""
    copy = Copy(*_values(point, ("text", "metadata"), ("", {})))
    # of its vector nothing is said: Qdrant itself brings it to length one, and keeps its size
    return Held(record, tenant, known, seq, point.id, copy=copy)


def _of_seq(engine: Engine, seq: int) -> list[Any]:
    return [engine.between("seq", gte=seq, lte=seq)] if seq else []  # it may have lost its own


def _values(point: Stored, fields: Sequence[str], otherwise: tuple[Any, ...]) -> tuple[Any, ...]:
    """Fields of its payload; another value where one is missing, or of another type."""
    return tuple(
        value
        if isinstance(value := point.payload.get(field), type(other)) or other is None
        else other
        for field, other in zip(fields, otherwise, strict=True)
    )
