"""The versions whose jobs this process can do: it has their model and their chunker.

A process also describes its models and chunkers to the store, for processes that lack the kinds'
code. A version whose collection in the index cannot hold its vectors waits until that is corrected.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Container, Mapping

from evervec.chunking import Chunker, Cutter, parse_chunker
from evervec.embedding.registry import EmbedderRegistry, Model
from evervec.errors import IndexUnavailable, InvalidArgument, VersionMismatch, WrongCollection
from evervec.indexes.base import Index
from evervec.records.kinds import Kind
from evervec.records.vectors import Target
from evervec.stores.base import Store
from evervec.stores.values import Collection, KindSpec

log = logging.getLogger("evervec")

_ASK_AGAIN = 5.0
"""seconds between two checks of a model that cannot be opened, or of a wrong collection"""


class ServedVersions:
    """The versions that one process serves, with the model and chunker of each."""

    def __init__(
        self, store: Store, index: Index, models: EmbedderRegistry, kinds: Mapping[str, Kind]
    ) -> None:
        self._store = store
        self._index = index
        self._models = models
        self._kinds = kinds
        self.models: dict[int, Model] = {}
        self.chunkers: dict[int, Chunker] = {}
        self._versions: list[int] = []
        self._collections: list[Collection] = []
        self._models_and_kinds: tuple[object, ...] = ()
        self._until = 0.0
        """`_versions` is valid until then, for these collections, models and kinds"""
        self._refused: dict[int, float] = {}
        """versions whose collection in the index is wrong, and when to check again"""

    def check_model(self) -> None:
        """Raise `VersionMismatch` if the model of this process serves no kind of the store: it may
        be a mistake, or another process may have migrated the store."""
        collections, main = self._store.versions.collections(), self._models.main
        if main is None:
            return
        served = [(c.kind, c.spec) for c in collections if c.state == "serving" and c.spec]
        if served and not any(main.makes(spec) for _, spec in served):
            kind, spec = served[-1]
            raise VersionMismatch(
                f"{self._store.url} serves {kind!r} with vectors of {spec.provider} "
                f"{spec.model!r} ({spec.dimensions} dimensions, version {spec.name!r}), but was "
                f"opened with {main.spec.provider} {main.spec.model!r} ({main.spec.dimensions}); "
                "vectors of different models cannot be compared: open it with the first, then "
                "migrate without downtime with ev.migrate(embedder=...) or `evervec migrate`"
            )
        if any(c.spec is None for c in collections) and not self._store.read_only:
            self._store.versions.adopt(main.spec)

    def refresh(self) -> list[int]:
        """Describe this process's models and chunkers to the store, if it does not have them yet;
        returns the versions that this process serves."""
        found, known = self._store.versions.collections(), (*self._models, *self._kinds.values())
        if (
            found is self._collections
            and known == self._models_and_kinds
            and time.monotonic() < self._until
        ):
            return self._versions
        found, versions, until = self._describe(found), [], math.inf
        for c in found:
            model = self._models.of(c.spec)
            if c.state == "retired":
                continue
            if model is None:  # it may become possible to open the model later
                until = time.monotonic() + _ASK_AGAIN
            elif chunker := self.chunker_of(c):
                self.chunkers[c.version] = chunker
                self.models[c.version] = model
                versions.append(c.version)
        self._models_and_kinds = (*self._models, *self._kinds.values())  # some were opened by name
        self._collections, self._versions, self._until = found, versions, until
        return versions

    def _describe(self, found: list[Collection]) -> list[Collection]:
        spec = self._models.for_new_kinds(found)
        if spec and any(c.spec is None for c in found):
            self._store.versions.adopt(spec)
            found = self._store.versions.collections()
        undescribed = {
            c.version: way
            for c in found
            if (c.kind in self._kinds or not (c.chunker or c.app))
            and (way := self.way_of(c))
            and (way.chunker, way.app) != (c.chunker, c.app)
        }
        if undescribed:
            self._store.versions.describe(undescribed)
            found = self._store.versions.collections()
        return found

    def way_of(self, c: Collection) -> KindSpec | None:
        """How this process would chunk a collection's texts; None if it lacks the model."""
        model, kind = self._models.of(c.spec), self._kinds.get(c.kind)
        if model is None:
            return None
        return kind.spec(model.chunker) if kind else KindSpec(model.chunker.spec)

    def chunker_of(self, c: Collection) -> Chunker | None:
        """The chunker of a collection; None where this process lacks the model, or the code of the
        kind's chunker or loader."""
        model, kind = self._models.of(c.spec), self._kinds.get(c.kind)
        if model is None or (c.app and kind is None):
            return None
        own = kind.chunker if kind else None
        return own or parse_chunker(c.chunker, model.chunker)

    def cutter_of(self, c: Collection) -> Cutter | None:
        """The collection's chunker together with its model's window."""
        chunker, model = self.chunker_of(c), self._models.of(c.spec)
        return Cutter(chunker, model.window) if chunker and model else None

    def target_of(self, kind: str) -> Target:
        """The model and cutter of the vectors that searches of a kind use. Raises `InvalidArgument`
        if this process does not have them."""
        found = self._store.versions.collections()
        serving = [c for c in found if c.kind == kind and c.state == "serving" and c.spec]
        spec = self._models.for_new_kinds(found)
        c = serving[0] if serving else Collection(0, kind, "serving", "", False, 0, spec)
        model, cutter = self._models.of(c.spec), self.cutter_of(c)
        if c.spec is None or model is None:
            named = f"of {c.spec.model!r} " if c.spec else ""
            raise InvalidArgument(
                f"this process has no embedder {named}for kind {kind!r}, which cuts texts into "
                "chunks and embeds queries: open the store with embedder=..."
            )
        if cutter is None:
            raise InvalidArgument(
                f"kind {kind!r} has a chunker of its own, which this process lacks: register it"
            )
        return Target(c.spec, model.key, cutter)

    def needs_app(self, version: int) -> bool:
        """Whether only a process that registered the kind can do its jobs; read again, because it
        may have changed since the claim."""
        return any(c.app for c in self._store.versions.collections() if c.version == version)

    # versions that the index cannot hold
    def refuse(self, error: WrongCollection) -> None:
        """Claim no jobs of a version until the index can hold its vectors."""
        if error.version not in self._refused:
            log.error("jobs of an embedding version are waiting: %s", error)
        self._refused[error.version] = time.monotonic() + _ASK_AGAIN

    def refresh_claimable(self, unavailable: Container[Model]) -> list[int]:
        """The versions whose jobs may be claimed, after a `refresh`: not those of these models, nor
        those that the index cannot hold. It is asked again about versions that were refused a while
        ago."""
        served = self.refresh()
        for version, again_at in list(self._refused.items()):
            if time.monotonic() < again_at:
                continue
            if self._cannot_hold(version):
                self._refused[version] = time.monotonic() + _ASK_AGAIN
            else:
                del self._refused[version]
        return [
            version
            for version in served
            if version not in self._refused and self.models.get(version) not in unavailable
        ]

    def _cannot_hold(self, version: int) -> bool:
        found = next((c for c in self._store.versions.collections() if c.version == version), None)
        try:
            return bool(found and found.spec and self._index.refuses(found.kind, found.spec))
        except IndexUnavailable:
            return True
