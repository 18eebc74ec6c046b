"""The life of versions: built beside each other, switched, kept up to date, retired and dropped.

A version is built at low priority while every change goes to both versions. The switch is one
transaction of the store. The old version is kept up to date, so that a rollback is possible, until
it is retired. No state is in a process: the store's versions are the migration, so it continues
after a crash, with any worker that has the models, and any process can control it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from evervec.embedders.base import Embedder, spec_of
from evervec.embedding.registry import EmbedderRegistry, Model
from evervec.errors import IndexUnavailable, InvalidArgument, InvalidTransition
from evervec.indexes.base import Index
from evervec.indexes.location import check_generation
from evervec.model.basics import as_datetime
from evervec.model.deadlines import bounded, check
from evervec.model.records import ModelSpec, Version
from evervec.model.reports import MigrationStatus
from evervec.settings import Settings
from evervec.stores import notes
from evervec.stores.base import Store
from evervec.stores.values import Collection
from evervec.verify.verify import CutterOf, verify_versions
from evervec.versions.backfill import Backfiller
from evervec.versions.pace import jobs_per_second

log = logging.getLogger("evervec")

_LOCK = "migration"
_LOCK_SECONDS = 5.0
"""the lock only saves work: two processes doing the same do no harm"""
_GRACE = 5.0
"""seconds for which a search may still use a version that was just retired; a search that took
longer checks that its versions still exist"""
_MAKES_WAY = 2.0
"""seconds to wait for transactions that may write for a version whose name is to be reused"""
_LOOK_AGAIN = 0.05


@dataclass(frozen=True, slots=True)
class Pair:
    """The two versions of one kind in a migration: the new one, and the one it replaces."""

    new: Collection
    old: Collection | None


@dataclass(eq=False, repr=False)
class VersionLifecycle:
    """All migrations of a store, as one process sees and drives them."""

    store: Store
    index: Index
    models: EmbedderRegistry
    _backfiller: Backfiller
    cutter_of: CutterOf
    _worker: str
    settings: Settings

    # beginning
    def begin(
        self, embedder: Embedder, version: str | None, kind: str | None, *, switch: bool
    ) -> str:
        """Begin a migration, or continue one to the same model; returns the new version's name."""
        model = self._model(embedder, version)
        with self._turn():
            found = self.store.versions.collections()
            serving = [c for c in found if c.state == "serving" and kind in (None, c.kind)]
            if not serving:
                where = f"of kind {kind!r}" if kind else "in this store"
                raise InvalidArgument(f"nothing to migrate: there are no records {where}")
            spec = self._named(model, version, found)
            begun = [c for c in serving if _lacks_version(c, spec, found)]
            kinds = {c.kind for c in begun}
            for c in found:
                if c.state == "retired" and c.kind in kinds and c.spec and c.spec.name == spec.name:
                    self._free_name(c)
            self._check_index(begun, spec)
            if any(c.spec is None for c in begun):
                self.store.versions.adopt(spec)  # they have no vectors to keep
                begun = [c for c in begun if c.spec is not None]
            if begun:
                self.store.versions.begin(spec, [c.kind for c in begun])
                log.info(
                    "migration: building %s beside the serving version (%s)",
                    spec.name, ", ".join(c.kind for c in begun),
                )  # fmt: skip
        self.ask_to_switch(spec.name, wanted=switch)
        self.store.wake()
        return spec.name

    def _model(self, embedder: Embedder, version: str | None) -> Model:
        spec = spec_of(embedder)
        if spec is None:
            raise InvalidArgument("the noop embedder makes no vectors: migrate to another one")
        own = getattr(embedder, "version", None)
        if version is not None and own is not None and version != own:
            raise InvalidArgument(
                f"the embedder sets its version name {own!r} itself: omit version="
            )
        if self.models.main is None:
            raise InvalidArgument(
                "this store was opened without an embedder: open it with the serving one"
            )
        return self.models.add(embedder)

    def _named(self, model: Model, version: str | None, found: Sequence[Collection]) -> ModelSpec:
        """The new version's name: as requested; otherwise that of an unfinished migration to this
        model; otherwise the model's name, with a suffix if that is taken."""
        if version is not None:
            return replace(model.spec, name=version)
        for c in reversed(found):
            if c.spec and c.state != "retired" and model.makes(c.spec):
                return c.spec
        taken = {c.spec.name for c in found if c.spec and c.state != "retired"}
        names = [model.spec.name, f"{model.spec.name}-{model.spec.dimensions}"]
        names += [f"{names[1]}-{number}" for number in range(2, len(taken) + 3)]
        return replace(model.spec, name=next(name for name in names if name not in taken))

    def _check_index(self, begun: Sequence[Collection], spec: ModelSpec) -> None:
        """Refuse a version whose vectors the index cannot hold beside the serving ones."""
        with suppress(IndexUnavailable):  # it is checked again once the index is available
            for c in begun:
                if why := self.index.refuses(c.kind, spec):
                    raise InvalidArgument(why)

    def _free_name(self, c: Collection) -> None:
        """Drop a retired version whose name is to be reused, once no transaction writes for it. It
        cannot wait for leases: a worker that is about to write may leave points, which `verify`
        removes."""
        deadline = time.monotonic() + _MAKES_WAY
        while not self.store.versions.track_unaware(c.version, "retired"):
            if time.monotonic() > deadline:
                assert c.spec is not None
                raise InvalidTransition(
                    f"the dropped version {c.spec.name!r} of {c.kind!r} is still in use by an open "
                    "transaction: end that transaction and try again, or give the new version "
                    "another name with version="
                )
            time.sleep(_LOOK_AGAIN)
        self._drop(c, even_held=True)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the lock for creating and dropping versions."""
        holder = f"{self._worker} {time.monotonic_ns()}"
        deadline = time.monotonic() + self.settings.busy_seconds
        while (token := self._lock(holder)) is None:
            if time.monotonic() > deadline:
                raise InvalidTransition("another process is changing a migration: try again")
            time.sleep(_LOOK_AGAIN)
        try:
            yield
        finally:
            with bounded(None):
                self.store.shared.unlock(_LOCK, token)

    def _lock(self, holder: str) -> str | None:
        """Try to take the lock. A deadline that ends or is cancelled interrupts neither this nor
        the release: the lock would stay until it expires."""
        check()
        with bounded(None):
            return self.store.shared.lock(_LOCK, holder, _LOCK_SECONDS)

    # reading
    def list_versions(self, tenant: str | None) -> list[Version]:
        """The versions of a tenant's kinds, with counts of its records; None: of all kinds, with
        counts of the whole store."""
        found, names = [], self._index_tables()
        for v in self.store.versions.all():
            template = notes.TEMPLATE.of(v.kind).get(self.store.shared) or ""
            found.append(replace(v, table=names.get((v.kind, v.name), ""), template=template))
        if tenant is None:
            return found
        held = self.store.versions.holdings(tenant)
        return [
            replace(version, items=mine.items, last_sync_at=as_datetime(mine.last_sync_at))
            for version in found
            if (mine := held.get((version.kind, version.name))) is not None
        ]

    def _index_tables(self) -> dict[tuple[str, str], str]:
        collections = self.store.versions.collections()
        return {(c.kind, c.spec.name): self.index.table(c) for c in collections if c.spec}

    def current(self) -> str | None:
        """The new version of the migration that is unfinished, or that can still be rolled back."""
        names = [
            pair.new.spec.name
            for pair in self.pairs(None)
            if pair.new.spec and (pair.old or pair.new.state == "building")
        ]
        return names[-1] if names else None

    def pairs(self, name: str | None) -> list[Pair]:
        """The kinds' newest versions (of that name), each with the version it replaces."""
        by_kind: dict[str, list[Collection]] = {}
        for c in self.store.versions.collections():
            if c.state != "retired":
                by_kind.setdefault(c.kind, []).append(c)
        found = [Pair(cs[-1], cs[-2] if len(cs) > 1 else None) for cs in by_kind.values()]
        return [p for p in found if p.new.spec and name in (None, p.new.spec.name)]

    # driving
    def step(self) -> int:
        """Do a slice of the work for versions that are being built or retired; returns how many
        records were enqueued. Workers call it when they have nothing more urgent to do."""
        if not any(self._has_work(c) for c in self.store.versions.collections()):
            return 0
        check_generation(self.store, self.index)
        token = self._lock(self._worker)
        if token is None:
            return 0
        try:
            # read again: another process may have held the lock until now
            found = self.store.versions.collections()
            for c in found:
                if c.state == "building" and (count := self._fill(c)):
                    return count
                if c.state == "retired":
                    self._drop_after_grace(c)
            for name in {c.spec.name for c in found if c.state == "building" and c.spec}:
                self._switch_if_asked(name)
        finally:
            with bounded(None):
                self.store.shared.unlock(_LOCK, token)
        return 0

    def _has_work(self, c: Collection) -> bool:
        if c.state == "building":
            return not self.is_filled(c) or (c.spec is not None and self.will_switch(c.spec.name))
        return c.state == "retired"

    def _fill(self, c: Collection) -> int:
        """Enqueue a slice of the records that a version lacks."""
        note = notes.FILLED.of(c.version)
        position = note.get(self.store.shared)
        if position == math.inf:
            return 0
        if position is None:
            if not self.store.versions.track_unaware(c.version, "building"):
                return 0
            while self.store.versions.join(c.version):
                pass
            position = 0
        enqueued, upto = self._backfiller.fill(c, int(position))
        note.put(self.store.shared, math.inf if upto is None else upto)
        return enqueued

    def is_filled(self, c: Collection) -> bool:
        """Whether all records that it lacked are enqueued."""
        return notes.FILLED.of(c.version).get(self.store.shared) == math.inf

    def ask_to_switch(self, name: str, *, wanted: bool) -> None:
        notes.SWITCH_TO.of(name).put(self.store.shared, "yes" if wanted else None)

    def will_switch(self, name: str) -> bool:
        return notes.SWITCH_TO.of(name).get(self.store.shared) is not None

    def _switch_if_asked(self, name: str) -> None:
        if not (self.will_switch(name) and self._is_complete(name) and self.repair(name)):
            return
        try:
            behind = self.switch(name, force=False, timeout=1.0)
        except InvalidTransition:  # it was cancelled while it was checked
            return
        if behind:
            log.info("migration: not switched to %s yet: it lacks %d records", name, behind)

    def _is_complete(self, name: str) -> bool:
        """As `status(name).complete`, without the counts that take long in a large store."""
        new = [pair.new for pair in self.pairs(name)]
        filled = all(c.state != "building" or self.is_filled(c) for c in new)
        return filled and not any(self.store.versions.behind(c.version) for c in new)

    def status(self, name: str) -> MigrationStatus:
        """The progress of the migration to a version."""
        asked = self.will_switch(name)  # read first: a switch in between clears it
        pairs = self.pairs(name)
        states = {pair.new.state for pair in pairs}
        progress = [self.store.versions.progress(pair.new.version) for pair in pairs]
        kinds = tuple(pair.new.kind for pair in pairs)
        left = sum(max(p.pending, p.records - p.current - p.failed) for p in progress)
        rate = jobs_per_second(self.store, kinds)
        return MigrationStatus(
            version=name,
            state=_state(pairs, states),
            kinds=kinds,
            records=sum(p.records for p in progress),
            current=sum(p.current for p in progress),
            pending=sum(p.pending for p in progress),
            failed=sum(p.failed for p in progress),
            behind=sum(p.behind for p in progress),
            enqueued=all(p.new.state != "building" or self.is_filled(p.new) for p in pairs),
            switches_by_itself=asked,
            rate=rate,
            seconds_left=left / rate if rate and left > 0 and "building" in states else None,
        )

    def switch(self, name: str, *, force: bool, timeout: float) -> int:
        """Make a version serve as soon as it lacks nothing, or at once with `force`; returns how
        many records it lacks."""
        serve = [pair.new.version for pair in self.pairs(name) if pair.new.state != "serving"]
        deadline = time.monotonic() + timeout
        while behind := self.store.versions.switch(serve, force=force):
            if force:
                break
            if time.monotonic() > deadline:
                return behind
            time.sleep(_LOOK_AGAIN)
        self.ask_to_switch(name, wanted=False)
        log.info("migration: switched to %s", name, extra={"version": name})
        return behind

    def repair(self, name: str) -> bool:
        """Verify a version in the index and repair its faults; returns whether there were none."""
        versions = {pair.new.version for pair in self.pairs(name)}
        report = verify_versions(self.store, self.index, self.cutter_of, versions, repair=True)
        if not report.clean:
            log.warning("migration: repairing %s before the switch: %s", name, report)
        return report.clean

    # retiring
    def retire(self, gone: Sequence[Collection]) -> None:
        """Retire versions: changes no longer reach them, and workers drop them a little later."""
        for c in gone:
            notes.RETIRED.of(c.version).put(self.store.shared, self.store.now())
        self.store.versions.retire([c.version for c in gone])
        self.store.wake()

    def drop_retired(self) -> None:
        """Drop retired versions now."""
        check_generation(self.store, self.index)
        for c in self.store.versions.collections():
            if c.state == "retired" and self.store.versions.track_unaware(c.version, c.state):
                time.sleep(min(_GRACE, max(0.0, _GRACE - self._retired_for(c))))
                self._drop(c)

    def _retired_for(self, c: Collection) -> float:
        return self.store.now() - (notes.RETIRED.of(c.version).get(self.store.shared) or 0.0)

    def _drop_after_grace(self, c: Collection) -> None:
        if self._retired_for(c) >= _GRACE and self.store.versions.track_unaware(
            c.version, "retired"
        ):
            self._drop(c)

    def _drop(self, c: Collection, *, even_held: bool = False) -> None:
        """Drop jobs first: without jobs no worker writes for the version. While a worker holds one
        of them, nothing is dropped: a later step does it."""
        while gone := self.store.versions.drop(c.version, even_held=even_held):
            pass
        if gone is None:
            return
        self.index.drop(c.version)
        self.store.versions.forget(c.version)
        for key in (notes.FILLED, notes.RETIRED, notes.BACKFILLED):
            key.of(c.version).put(self.store.shared, None)
        log.info("migration: removed the rest of version %d of %s", c.version, c.kind)


def _lacks_version(c: Collection, spec: ModelSpec, found: Sequence[Collection]) -> bool:
    """Whether a kind has no version of that name yet; raises an error if it cannot have one."""
    if c.spec and c.spec.name == spec.name:
        if not c.spec.makes_as(spec):
            raise InvalidArgument(
                f"{c.kind!r} is already served by a version named {spec.name!r}, of "
                f"{c.spec.provider} {c.spec.model}: give the new one another name with version="
            )
        return False
    for other in found:
        if other.kind != c.kind or other is c or other.spec is None or other.state == "retired":
            continue
        if other.spec.name != spec.name or not other.spec.makes_as(spec):
            raise InvalidTransition(
                f"{c.kind!r} is already being migrated to {other.spec.name!r}: retire or "
                "cancel that migration first"
                if other.version > c.version
                else f"{c.kind!r} still keeps {other.spec.name!r} for a rollback: retire that first"
            )
        return False
    return True


def _state(pairs: Sequence[Pair], states: set[str]) -> str:
    if not pairs:
        return "gone"
    if "building" in states:
        return "building"
    if "standby" in states:
        return "rolled back"
    return "switched" if any(pair.old for pair in pairs) else "finished"
