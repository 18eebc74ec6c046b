"""Turns changes into operations on points, guarded by seq.

Qdrant has no transactions. New points are written first, and surplus points are deleted last. Where
others may write too, everything is read back, and a writer that was overtaken removes its own
points again. If there are no other writers, a new chunk replaces a surplus one, which is half the
work.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from evervec.errors import IndexUnavailable
from evervec.indexes.qdrant.engine import Engine, NewPoint, Stored
from evervec.model.records import Change
from evervec.stores.values import Applied

_POINTS = uuid.UUID("6b2d9a52-4c1f-4d0e-9a39-0f3f6d1c9e57").bytes
_TRIES = 5


class _Plan(NamedTuple):
    """What a change does to the present points."""

    change: Change
    new: dict[str, NewPoint]
    common: dict[str, Any]
    kept: dict[str, int]
    """positions by id, of present points"""
    gone: list[str]
    there: dict[str, Stored]


class PointWriter:
    """The part of the index that changes points."""

    def __init__(self, engine: Engine, now: Callable[[], float]) -> None:
        self._engine = engine
        self._now = now

    def write(self, collection: str, version: int, changes: list[Change]) -> Applied:
        """Bring records to the state in the changes, one change per record."""
        applied = Applied()
        for _ in range(_TRIES):
            plans = self._plan(collection, version, changes, applied)
            if not plans:
                return applied
            self._engine.update(collection, self._operations(plans))
            if self._engine.alone:
                return applied
            changes = self._overtaken(collection, version, plans, applied)
            if not changes:
                return applied
        raise IndexUnavailable(
            f"{self._engine.url}: conflicting writes of {len(changes)} records by other writers"
        )

    def _plan(
        self, collection: str, version: int, changes: list[Change], applied: Applied
    ) -> list[_Plan]:
        """Plan the changes; those of records with a newer write are skipped."""
        present = self._present(collection, version, changes)
        now = self._now()
        plans = []
        for c in changes:
            there = present[c.record]
            latest = _latest(there)
            if latest > c.seq:  # a newer write or removal exists
                applied.newer[version, c.record] = latest
                continue
            common = _common(c)
            has = {point.payload.get("hash"): id for id, point in there.items()}
            kept = {has[h.hex()]: place for h, place in c.kept.items() if h.hex() in has}
            if len(kept) < len(c.kept):
                applied.missing.add((version, c.record))
            new: dict[str, NewPoint] = {}
            for id, p in zip(self._ids(version, c, has, kept), c.points, strict=True):
                own = {"hash": p.hash.hex(), "position": p.position, "text": p.text}
                new[id] = NewPoint(id, p.vector, common | own)
            if not c.points and not c.kept:
                id = point_id(version, c.record, b"")
                new[id] = NewPoint(id, None, common | {"removed_at": now})
            gone = [id for id in there if id not in new and id not in kept]
            still = {id: place for id, place in kept.items() if id not in new}
            plans.append(_Plan(c, new, common, still, gone, there))
        return plans

    def _ids(
        self, version: int, change: Change, has: Mapping[str | None, str], kept: Iterable[str]
    ) -> list[str]:
        """The ids of the points for the change's chunks; `has`: the present points, by hash."""
        hashes = [p.hash for p in change.points]
        if not self._engine.alone:  # two writers of the same chunk write the same point
            return [point_id(version, change.record, h) for h in hashes]
        known = [has.get(h.hex()) for h in hashes]
        taken = {*known, *kept, has.get(None)}  # a tombstone's id is not used for a chunk
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
        """The operations: new points first and deletions last, so that a record is never without
        points."""
        engine = self._engine
        first, then, last = [], [], []
        together, gone = [], []
        # One bound that is safe for all plans: a concurrent write with a seq in between is found
        # when reading back, and without other writers the present points were already checked.
        seqs = [plan.change.seq for plan in plans]
        bound = max(seqs) if engine.alone else min(seqs)
        for plan in plans:
            points = plan.new.values()
            together += [p for p in points if engine.alone or p.id not in plan.there]
            again = [p for p in points if not engine.alone and p.id in plan.there]
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

    def _overtaken(
        self, collection: str, version: int, plans: list[_Plan], applied: Applied
    ) -> list[Change]:
        """The changes to be written again. Where a newer writer was faster, this writer's points
        are removed."""
        engine = self._engine
        present = self._present(collection, version, [plan.change for plan in plans])
        again, stale = [], []
        for plan in plans:
            seq, there = plan.change.seq, present[plan.change.record]
            if (latest := _latest(there)) > seq:
                applied.newer[version, plan.change.record] = latest
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


def _latest(there: Mapping[str, Stored]) -> int:
    """The highest seq of a record's points."""
    return max((point.payload["seq"] for point in there.values()), default=0)


def point_id(version: int, record: int, hash: bytes) -> str:
    """The id of a chunk's point, the same for every writer; a tombstone has an empty hash."""
    # a UUID of version 5, formatted directly for speed: there is one for each point of each batch
    name = _POINTS + f"{version}/{record}/{hash.hex()}".encode()
    said = hashlib.sha1(name, usedforsecurity=False).hexdigest()
    variant = "89ab"[int(said[16], 16) & 3]
    return f"{said[:8]}-{said[8:12]}-5{said[13:16]}-{variant}{said[17:20]}-{said[20:32]}"


def _common(change: Change) -> dict[str, Any]:
    """The payload that all points of a record share."""
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
