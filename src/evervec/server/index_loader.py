"""Loads the index into memory beside the requests.

The first search by vector of a process reads what the index keeps in memory, such as the sketches of a
million vectors, which takes seconds. The service does so when it starts, for its own tenant and for large
ones. A page that shows hits only beside other things does not wait for that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial

from evervec.errors import EvervecError
from evervec.facade import Evervec
from evervec.indexes.base import Query
from evervec.model.deadlines import Deadline, bounded, holding, left
from evervec.runtime.threads import start, submit
from evervec.stores.values import Collection

log = logging.getLogger("evervec.server")

_Key = tuple[int, str]
"""embedding version and tenant"""
_TENANTS, _SEEN = 4, 100
"""how many tenants are loaded at the start, and among how many the largest are looked for"""
_MOST = 16
"""loads that are under way or wait"""
_KEPT = 10_000
_SECONDS = 600.0
_CLOSE_SECONDS = 2.0


class IndexLoader:
    """Makes one search in each collection that is wanted, one after another. What the index then holds
    is bounded by `cache_mb`."""

    def __init__(self, ev: Evervec, of: Callable[[str], Evervec]) -> None:
        self._ev = ev
        self._of = of
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._loaded: set[_Key] = set()
        self._loading: dict[_Key, Future[None]] = {}
        self._all = Deadline(_SECONDS)
        """cancelled when the service stops"""

    def start(self) -> None:
        """Load the tenants that are likely to be searched; returns at once."""
        start("evervec-index-loader", self._load_first)

    def close(self) -> None:
        """End what is under way."""
        self._all.cancel("the service stops")
        with self._lock:
            under_way = list(self._loading.values())
        wait(under_way, _CLOSE_SECONDS)

    def is_ready(self, ev: Evervec, kind: str, seconds: float) -> bool:
        """Whether a search in a kind by vector can begin at once. If not, what it reads is being
        loaded, for which this waits up to so many seconds. Raises what the index raised."""
        for collection in _serving(ev):
            if collection.kind == kind:
                return self._is_ready(ev, collection, seconds)
        return True

    def _is_ready(self, ev: Evervec, collection: Collection, seconds: float) -> bool:
        loading = self._begin(ev, collection)
        if loading is None:
            return False
        try:
            loading.result(left(seconds))
        except TimeoutError:
            return False
        return True

    def _begin(self, ev: Evervec, collection: Collection) -> Future[None] | None:
        """The load of a collection, which may be over; None: too many others are under way."""
        key = (collection.version, ev.tenant)
        with self._lock:
            if key in self._loaded and ev.index.is_loaded(*key):
                done: Future[None] = Future()
                done.set_result(None)
                return done
            if key in self._loading or len(self._loading) >= _MOST:
                return self._loading.get(key)
            loading = submit("evervec-index-loader", partial(self._load, ev, collection))
            self._loading[key] = loading
            return loading

    def _load(self, ev: Evervec, collection: Collection) -> None:
        import numpy as np

        key = (collection.version, ev.tenant)
        try:
            assert collection.spec is not None
            any_vector = np.zeros(collection.spec.dimensions, np.float32)
            any_vector[0] = 1.0
            with bounded(Deadline(_SECONDS, outer=self._all)), holding(self._turn):
                ev.index.search(Query(*key, any_vector, 1))
            with self._lock:
                if len(self._loaded) >= _KEPT:
                    self._loaded.clear()
                self._loaded.add(key)
        finally:
            with self._lock:
                del self._loading[key]

    def _load_first(self) -> None:
        try:
            for ev in self._first():
                for collection in _serving(ev):
                    if (loading := self._begin(ev, collection)) is not None:
                        with suppress(EvervecError):
                            loading.result()
        except EvervecError as error:
            log.info("the index is loaded when it is searched first: %s", error)

    def _first(self) -> Iterator[Evervec]:
        yield self._ev
        used = [state.usage for state in self._ev.store.tenants.page("", _SEEN)]
        for usage in sorted(used, key=lambda usage: -usage.chunks)[:_TENANTS]:
            if usage.chunks and usage.tenant != self._ev.tenant:
                yield self._of(usage.tenant)


def _serving(ev: Evervec) -> Iterator[Collection]:
    for collection in ev.store.versions.collections_of(ev.tenant):
        if collection.state == "serving" and collection.spec is not None:
            yield collection
