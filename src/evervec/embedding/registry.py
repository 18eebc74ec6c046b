"""The models that this process can embed with: its own, and those of the store's other versions.

During a migration, or after another process ran one, a store has vectors of several models. A model
that can be opened by name is opened when it is first needed; a model that only a program can create
has to be passed by that program.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evervec.chunking import ContentChunker, Measure, Window, hash_text
from evervec.embedders.base import Embedder, spec_of
from evervec.embedding.provider import Provider
from evervec.errors import EvervecError, InvalidArgument
from evervec.model.records import ModelSpec
from evervec.queue.recorder import Recorder
from evervec.runtime.coroutines import LOOP
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.values import Collection

log = logging.getLogger("evervec")

Opener = Callable[[ModelSpec, Settings], Embedder]

_WINDOW_SHARE = 0.86
_TOKEN_SHARE = 0.98
"""the rest is for the special tokens and the prompt that a model adds to every text"""
_LEAST_CHUNK = 16
_TRY_AGAIN = 60.0


class Model:
    """An embedder with its provider, chunker, window and cache."""

    def __init__(
        self, provider: Provider, spec: ModelSpec, store: Store, settings: Settings
    ) -> None:
        self.spec = spec
        self.provider = provider
        self.chunker = chunker_for(provider.embedder, settings.chunk_tokens)
        """how texts are chunked if the kind does not say"""
        self.window = window_of(provider.embedder)
        self.cache = VectorCache.of(store, spec, settings.vector_cache_mb)
        self._is_named = getattr(provider.embedder, "version", None) is not None

    @property
    def key(self) -> str:
        """The name of its vectors in the store."""
        return key_of(self.spec)

    def makes(self, spec: ModelSpec) -> bool:
        """Whether it makes the vectors of a version. An embedder that names its own version makes
        that version only."""
        return spec.makes_as(self.spec) and not (self._is_named and spec.name != self.spec.name)


class EmbedderRegistry:
    """The models of a process. `main` is the model that the process was opened with; None if that
    makes no vectors, and then there are no other models either."""

    def __init__(
        self,
        provider: Provider,
        store: Store,
        settings: Settings,
        open: Opener | None,
        recorder: Recorder | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._open = open
        self._recorder = recorder
        self._opened: list[Any] = []
        self._failed: dict[ModelSpec, float] = {}
        self._lock = threading.RLock()
        self.spending = provider.spending
        """shared by all models, because the daily caps are"""
        spec = spec_of(provider.embedder)
        self.main = Model(provider, spec, store, settings) if spec else None
        self._known: list[Model] = [self.main] if self.main else []
        LOOP.hold(self)

    def __iter__(self) -> Iterator[Model]:
        return iter(list(self._known))

    def of(self, spec: ModelSpec | None) -> Model | None:
        """The model that makes a version's vectors; None if this process has none."""
        if spec is None or self.main is None:
            return None
        for model in self._known:
            if model.makes(spec):
                return model
        return self._by_name(spec)

    def add(self, embedder: Embedder) -> Model:
        """Add an embedder, unless an equal one is known."""
        spec = spec_of(embedder)
        if spec is None:
            raise InvalidArgument("the noop embedder makes no vectors: choose another one")
        with self._lock:
            for model in self._known:
                if model.makes(spec):
                    return model
            provider = Provider(embedder, self._store, self._settings, self._recorder)
            model = Model(provider, spec, self._store, self._settings)
            self._known.append(model)
            return model

    def _by_name(self, spec: ModelSpec) -> Model | None:
        with self._lock:
            if self._open is None or time.monotonic() < self._failed.get(spec, 0.0):
                return None
            try:
                embedder = self._open(spec, self._settings)
            except EvervecError as error:
                if spec not in self._failed:
                    log.warning("this process cannot make vectors of %s: %s", spec.model, error)
                self._failed[spec] = time.monotonic() + _TRY_AGAIN
                return None
            log.info("embedder: %s %s (the store has its vectors)", spec.provider, spec.model)
            self._failed.pop(spec, None)
            self._opened.append(embedder)
            return self.add(embedder)

    def for_new_kinds(self, collections: Sequence[Collection]) -> ModelSpec | None:
        """The model for a kind without vectors: that of the other kinds, under its name in the
        store. Another process may have migrated the store since this one was opened."""
        if self.main is None:
            return None
        serving = [c.spec for c in collections if c.state == "serving" and c.spec]
        if not serving:
            return self.main.spec
        mine = [spec for spec in serving if self.main.makes(spec)]
        return (mine or serving)[-1]

    def close(self) -> None:
        LOOP.release(self)
        for embedder in self._opened:
            if hasattr(embedder, "close"):
                embedder.close()


def chunker_for(embedder: Embedder, tokens: int) -> ContentChunker:
    """The default chunker for a model: it measures in the model's tokens if the model counts them,
    otherwise in bytes, at about four per token. The window must hold title and headings too."""
    window = getattr(embedder, "window", None)
    most = min(tokens, round(_WINDOW_SHARE * window)) if window else tokens
    count = getattr(embedder, "count_tokens", None)
    if count is not None:
        count_all = getattr(embedder, "count_all_tokens", None)
        return ContentChunker(most, measure=Measure(embedder.model, count, count_all))
    characters = getattr(embedder, "characters", None)
    if characters:  # a text never has more characters than bytes
        most = min(4 * most, max(_LEAST_CHUNK, round(_WINDOW_SHARE * characters)))
        return ContentChunker(most)
    return ContentChunker(4 * most)


def window_of(embedder: Embedder) -> Window | None:
    """How much of a text a model reads; None if unknown."""
    characters = getattr(embedder, "characters", None)
    if characters:
        return Window(characters, len)
    window, count = getattr(embedder, "window", None), getattr(embedder, "count_tokens", None)
    return Window(round(_TOKEN_SHARE * window), count) if window and count else None


def key_of(spec: ModelSpec) -> str:
    """The name of a model's vectors in the store."""
    return f"{spec.name}/{spec.dimensions}"


_ROW_BYTES = 100  # of a row, without its vector


class VectorCache:
    """The vectors of one model, by the hash of the whole embedded text, including its context."""

    def __init__(self, store: Store, model: ModelSpec, megabytes: int) -> None:
        self._store = store
        self._model = key_of(model)
        self._most = max(1, (megabytes << 20) // (4 * model.dimensions + _ROW_BYTES))

    @classmethod
    def of(cls, store: Store, model: ModelSpec | None, megabytes: int) -> VectorCache | None:
        return cls(store, model, megabytes) if model and megabytes else None

    def find(self, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """The cached vectors of some texts."""
        hashes = {text: hash_text(text) for text in texts}
        found = self._store.shared.cached(self._model, list(hashes.values()))
        return {
            text: np.frombuffer(found[hash], "<f4")
            for text, hash in hashes.items()
            if hash in found
        }

    def keep(self, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        packed = {hash_text(text): vector.tobytes() for text, vector in vectors.items()}
        self._store.shared.cache(self._model, packed, self._most)
