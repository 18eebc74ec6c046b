"""Finishes jobs together with their points.

If the index is in the store's own database, points and finish are one transaction. An index outside
the store is written first, under a fence: a durable number, larger than that of any earlier holder
of the job, by which the index orders writes. From the fence to the finish the ledger entry is in
doubt, so the next worker treats none of its chunks as kept. This makes it safe to stop, kill or
overtake a worker at any point.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

from evervec.indexes.base import Index
from evervec.model.records import Change
from evervec.queue.queue import Queue
from evervec.stores.base import Store
from evervec.stores.values import Applied, ChunksMissing, Finish, Place

log = logging.getLogger("evervec")

_HIGHEST_SEQ = 1 << 53
"""no store gives out a higher number, and engines that compare numbers as floats are exact up to
here"""


@dataclass(eq=False, repr=False)
class IndexWriter:
    """Writes the points of finished jobs to the index, and finishes the jobs in the store."""

    _store: Store
    _index: Index
    _queue: Queue
    _lease: float

    def finish(self, finishes: Sequence[Finish]) -> list[bool]:
        """Write points and ledger and finish the jobs; False where the lease was lost, or the
        record must be embedded again."""
        if self._index.shares_store:
            done = self._finish_together(finishes)
        else:
            done = self._finish_apart(finishes)
        return [f.job.job_id in done for f in finishes]

    def _end(self, finishes: Sequence[Finish]) -> list[bool]:
        apply = self._index.apply if self._index.shares_store else None
        return self._store.leases.finish(finishes, apply, self._index.generation)

    def _finish_together(self, finishes: Sequence[Finish]) -> set[int]:
        """Write points and finish jobs in one transaction of the store."""
        try:
            return _done(finishes, self._end(finishes))
        except ChunksMissing as error:  # the transaction changed nothing
            self._embed_again([f for f in finishes if f.place in error.places])
            whole = [f for f in finishes if f.place not in error.places]
            return _done(whole, self._end(whole))

    def _finish_apart(self, finishes: Sequence[Finish]) -> set[int]:
        """Write points to an index outside the store, then finish the jobs."""
        written, missing = self._apply(finishes)
        self._embed_again([f for f in written if f.place in missing])
        whole = [f for f in written if f.place not in missing]
        done = _done(whole, self._end(whole))
        self._look_again([f for f in whole if f.job.job_id not in done])
        return done

    def _apply(self, finishes: Sequence[Finish], above: int = 0) -> tuple[list[Finish], Set[Place]]:
        """Write the points of the jobs whose lease is still held, under a fence above that number.
        Returns what was written, and the places where kept chunks were missing."""
        fence, held = self._store.leases.fence([f.job for f in finishes], self._lease, above)
        mine = [f._replace(fence=fence) for f, good in zip(finishes, held, strict=True) if good]
        changes = [replace(f.change, seq=fence) for f in mine if f.change]
        applied = self._index.apply(changes) or Applied()
        written = [f for f in mine if f.place not in applied.newer]
        if above or not applied.newer:
            return written, applied.missing
        # The index has newer points for two possible reasons. The lease was lost, and the new
        # holder has already written. Or the store was restored from a backup, and its counter with
        # it. Only in the second case are the jobs still held, and the counter must move past the
        # index's numbers.
        late = [f for f in mine if f.place in applied.newer]
        odd = [f for f in late if applied.newer[f.place] > _HIGHEST_SEQ]
        self._refuse(odd)
        late = [f for f in late if f not in odd]
        if not late:
            return written, applied.missing
        more, missing = self._apply(late, max(applied.newer[f.place] for f in late))
        return written + more, applied.missing | missing

    def _refuse(self, finishes: Sequence[Finish]) -> None:
        """Fail jobs whose points in the index have a higher number than any store gives out: they
        were not written by evervec."""
        error = (
            f"{self._index.url} holds points of this record with a newer seq than the store: "
            "run `evervec verify --repair`, then retry the job"
        )
        if finishes:
            self._queue.fail_many([(f.job, error, True) for f in finishes])

    def _embed_again(self, finishes: Sequence[Finish]) -> None:
        """The index lacks chunks that the ledger lists: embed these records again completely."""
        if not finishes:
            return
        log.warning(
            "%s lacks chunks of %d records: embedding them again",
            self._index.url, len(finishes), extra={"count": len(finishes)},
        )  # fmt: skip
        for version, group in _by_version(finishes):
            records = [f.job.record for f in group]
            if self._store.changes.reopen(version, records, forget=True) < len(records):
                self._remove_late(group)
        self._queue.release_many([f.job for f in finishes])

    def _look_again(self, finishes: Sequence[Finish]) -> None:
        """The points were written, but the lease was lost by then: reopen the records. Where the
        store no longer has the record, it was deleted long ago and its tombstone purged, or its
        version was dropped: remove the points."""
        for f in sorted(finishes, key=lambda f: f.job.version):
            if not self._store.changes.reopen(f.job.version, [f.job.record], forget=False):
                self._remove(f)

    def _remove(self, f: Finish) -> None:
        if self._remove_late([f]):
            return
        fence, _ = self._store.leases.fence([], self._lease)
        job = f.job
        gone = Change(job.record, job.version, job.tenant, job.kind, job.record_id, fence)
        self._index.apply([gone])

    def _remove_late(self, finishes: Sequence[Finish]) -> bool:
        """Whether the version of these points is no longer in use: what the index had of it may
        have been dropped before they came. A new version may have its place in the index by now,
        so exactly these are removed."""
        used = {c.version for c in self._store.versions.collections() if c.state != "retired"}
        late = [f for f in finishes if f.job.version not in used]
        for f in late:
            job = f.job
            held = self._index.held(job.version, job.tenant, job.record - 1, job.record)
            self._index.remove(job.version, [point for point in held if point.seq == f.fence])
        return bool(late)


def _done(finishes: Sequence[Finish], done: Sequence[bool]) -> set[int]:
    """The ids of the jobs that were finished."""
    return {f.job.job_id for f, good in zip(finishes, done, strict=True) if good}


def _by_version(finishes: Iterable[Finish]) -> list[tuple[int, list[Finish]]]:
    groups: dict[int, list[Finish]] = defaultdict(list)
    for f in finishes:
        groups[f.job.version].append(f)
    return sorted(groups.items())
