"""State that all requests share: the store per tenant, and threads for blocking calls.

The library blocks, the server does not. Calls that many requests make at once (save a record, look
up a key, check whether a change is in the index) are grouped with `Batcher`; all others run in a
limited number of threads.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from evervec.errors import DeadlineExceeded, EvervecError
from evervec.facade import Evervec
from evervec.model.deadlines import bounded, deadline
from evervec.model.jobs import Status, Ticket
from evervec.records.writer import Save, save_each, save_together
from evervec.runtime.batcher import Batcher
from evervec.runtime.loops import resolve, resolve_in
from evervec.runtime.threads import processors
from evervec.server.audit_writer import AuditWriter
from evervec.server.buffers import Bodies, Unread
from evervec.server.deadlines import STOPPING, Call, Revocations, current_call, within_request
from evervec.server.delays import Delays
from evervec.server.fair_pool import FairPool
from evervec.server.idempotency import IdempotencyKeys
from evervec.server.index_loader import IndexLoader
from evervec.server.keys import TOKENS_COUNTED, Key, Keys
from evervec.server.rate_limits import Limiter, make_limiter
from evervec.server.shares import Shares
from evervec.server.strangers import Strangers
from evervec.server.verification import Verifications
from evervec.server.weights import Weights
from evervec.stores.values import Draft

log = logging.getLogger("evervec.server")

T = TypeVar("T")

_VIEWS_KEPT = 64
_FIRST_POLL, _LONGEST_POLL = 0.005, 0.25
"""seconds between two checks of a change that a request waits for, first and longest"""
_OWN_THREADS = 4
"""for the service itself: keys, limits, maintenance"""
_PUSHED = ""
"""used as tenant for pushed jobs; no tenant has this name"""
_SAVED_AT_ONCE = 1_000_000
"""characters of texts that are saved in one turn: others wait meanwhile"""
_SAVE_USES_SECONDS = 30.0
_PURGE_SECONDS = 3600.0


class Waited(NamedTuple):
    """A change that a request waits for."""

    tenant: str
    ticket: Ticket


class Service:
    """One open store, served to all tenants."""

    def __init__(self, ev: Evervec, limiter: Limiter | None = None) -> None:
        self.ev = ev
        self.keys = Keys(ev.store)
        self.limiter = make_limiter(ev.settings) if limiter is None else limiter
        self.idempotency_keys = IdempotencyKeys(ev.store, ev.settings)
        self.every_queue = ev.queue_of(None)
        self.stopping = asyncio.Event()
        self.weights = Weights(ev.store.tenants.limits)
        self.shares = Shares(weight_of=self.weights.of)
        self.delays = Delays()
        self.strangers = Strangers(ev.settings, self.delays)
        self.bodies, self.unread = Bodies(ev.settings), Unread(ev.settings)
        self.calls: set[Call] = set()
        """requests in progress"""
        self.in_progress: Counter[str] = Counter()
        """their number by tenant"""
        self.save = Batcher(
            "save", self._save_all, outcome=within_request,
            size_of=lambda asked: len(asked.draft.text), most_size=_SAVED_AT_ONCE,
        )  # fmt: skip
        self.audit = AuditWriter(ev.store, ev.settings)
        self.revocations = Revocations(self.keys, self.calls)
        self.verifications = Verifications(self)
        self.index_loader = IndexLoader(ev, self.of)
        self._find_key = Batcher("keys", self._find_all, outcome=within_request)
        self._settled = Batcher("settled", self._settled_all, outcome=within_request)
        self.pool = FairPool(
            ev.settings.server_threads,
            ev.settings.server_tenant_threads,
            at_once=processors() if ev.store.is_local else 0,
            weight_of=self.weights.of,
        )
        self._own_pool = FairPool(_OWN_THREADS, _OWN_THREADS, "evervec-service")
        self._views: dict[str, Evervec] = {}
        self._views_lock = threading.Lock()
        self._with_quotas: set[str] = set()
        self._has_keys = False
        self._unchecked: list[tuple[str, asyncio.Future[Key | None]]] = []
        """keys of requests that are not looked up yet"""
        self._used: dict[str, float] = {}
        self._outliving: set[asyncio.Future[Any]] = set()

    def of(self, tenant: str) -> Evervec:
        """The store as a tenant sees it. The most recently used views are kept, with their search
        caches."""
        if tenant == self.ev.tenant:
            return self.ev
        with self._views_lock:
            view = self._views.pop(tenant, None) or self.ev.of(tenant)
            self._views[tenant] = view  # most recently used last
            if len(self._views) > _VIEWS_KEPT:
                del self._views[next(iter(self._views))]
        return view

    async def run_for(self, tenant: str, do: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a blocking call for a tenant, in its turn and within the request's deadline."""
        work, refresh = partial(do, *args, **kwargs), partial(self.weights.refresh, tenant)
        return await self._run(self.pool, tenant, work, current_call(), refresh)

    async def run(self, do: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a short call for the service itself, in threads that no tenant uses."""
        return await self._run(self._own_pool, "", partial(do, *args, **kwargs), None)

    async def run_job(self, do: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a pushed job, without the deadline of a request."""
        return await self._run(self.pool, _PUSHED, partial(do, *args, **kwargs), None)

    async def _run(
        self,
        pool: FairPool,
        tenant: str,
        do: Callable[[], T],
        call: Call | None,
        after: Callable[[], None] = lambda: None,
    ) -> T:
        loop = asyncio.get_running_loop()
        here = contextvars.copy_context()  # so that log lines there have this request's id
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            answer: Any
            try:
                with bounded(None if call is None else call.deadline):
                    answer = do()
            except BaseException as error:  # noqa: BLE001 - passed on to the request
                answer = error
            resolve_in(loop, future, answer)
            after()

        turn = pool.submit(tenant, partial(here.run, work))
        return await (future if call is None else call.outcome(future, lambda: pool.withdraw(turn)))

    # saving
    def _save_all(self, asked: Sequence[Save]) -> list[Ticket | Exception]:
        with deadline(self.ev.settings.server_seconds):
            return save_together(asked, self.ev.store.changes, self._save_group)

    def _save_group(
        self, tenant: str, kind: str, drafts: Sequence[Draft], conn: Any
    ) -> Iterator[Ticket | EvervecError]:
        self.ev.attachments.check_writable(kind)
        yield from save_each(self.ev.store.changes, tenant, kind, drafts, conn)
        self._note_quotas(tenant)

    def has_quotas(self, tenant: str) -> bool:
        """Whether the tenant has a quota other than that of kinds, as of its last save."""
        return tenant in self._with_quotas

    def _note_quotas(self, tenant: str) -> None:
        found = self.ev.store.tenants.limits(tenant)
        if any((found.records, found.bytes, found.chunks, found.tokens, found.money)):
            self._with_quotas.add(tenant)
        else:
            self._with_quotas.discard(tenant)

    # waiting
    async def settle(self, tenant: str, ticket: Ticket, seconds: float) -> Status | None:
        """The final status of a change; None if it is not settled in time, or the service
        stops."""
        ends, pause = time.monotonic() + seconds, _FIRST_POLL
        call = current_call()
        assert call is not None
        call.extend(seconds)
        while True:
            try:
                end = await self._settled(Waited(tenant, ticket))
            except DeadlineExceeded:
                return None
            left = ends - time.monotonic()
            if end is not None:
                return end
            if left <= 0 or call.deadline.over or self.stopping.is_set():
                return None
            await call.pause(min(pause, left), self.stopping)
            pause = min(pause * 1.5, _LONGEST_POLL)

    def _settled_all(self, asked: Sequence[Waited]) -> list[Status | None]:
        return self.ev.store.jobs.settled(asked)

    # keys
    async def has_keys(self) -> bool:
        """Whether a key was ever created. From then on the service always requires keys."""
        if not self._has_keys:
            self._has_keys = await self.run(self.keys.any)
        return self._has_keys

    async def find_key(self, text: str) -> Key | None:
        """The valid key with this text, checked now; None if there is none."""
        if not self.ev.store.reads_at_once:
            return await self._find_key(text)
        # A thread would take longer than the read. Concurrent requests share one read.
        if len(self.calls) == 1:
            return contextvars.Context().run(self._find_all, [text])[0]  # under no deadline
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Key | None] = loop.create_future()
        self._unchecked.append((text, found))
        if len(self._unchecked) == 1:
            loop.call_soon(self._find_now, context=contextvars.Context())  # under no deadline
        return await found

    def _find_now(self) -> None:
        asked, self._unchecked = self._unchecked, []
        try:
            keys: Sequence[Key | Exception | None] = self._find_all([text for text, _ in asked])
        except Exception as error:  # noqa: BLE001 - passed on to the requests
            keys = [error] * len(asked)
        for (_, future), key in zip(asked, keys, strict=True):
            resolve(future, key)

    def _find_all(self, texts: Sequence[str]) -> list[Key | None]:
        found = self.keys.check(set(texts))
        now = self.ev.store.now()
        self._used.update((key.id, now) for key in found.values() if key is not None)
        return [found[text] for text in texts]

    # beside the requests
    def outlive(self, work: asyncio.Future[Any]) -> None:
        """Keep work that may go on after its request, and log its failure."""

        def ended(work: asyncio.Future[Any]) -> None:
            self._outliving.discard(work)
            if not work.cancelled() and (error := work.exception()) is not None:
                log.error("work for a request failed: %s", error)

        self._outliving.add(work)
        work.add_done_callback(ended)

    async def maintain(self) -> None:
        """Save the last uses of keys and what was counted, and purge old rows, periodically; runs
        until cancelled."""
        next_sweep = 0.0
        while True:
            await asyncio.sleep(_SAVE_USES_SECONDS)
            try:
                await self.run(self.save_key_uses)
                await self.run(self.every_queue.recorder.flush_if_due)
                self.audit.end_repeats(self.ev.store.now())
                await self.run(self.audit.write_counted)
                if time.monotonic() >= next_sweep:
                    next_sweep = time.monotonic() + _PURGE_SECONDS
                    await self.run(self._purge)
            except EvervecError as error:
                log.warning("uses of keys were not saved: %s", error)
            except Exception:  # retried the next time
                log.exception("uses of keys were not saved")

    def _purge(self) -> None:
        """Purge old responses, expired tokens and old audit entries."""
        store, settings, now = self.ev.store, self.ev.settings, self.ev.store.now()
        store.service.forget_asked(now - settings.server_repeat_hours * 3600)
        store.service.forget_tokens(now - TOKENS_COUNTED)
        store.service.forget_audit(now - settings.keep_audit_days * 86400)
        self.audit.trim()

    def save_key_uses(self) -> None:
        used, self._used = self._used, {}
        if used:
            self.keys.used(dict(used))

    def abort_requests(self) -> None:
        """Cancel all requests in progress; called in the event loop."""
        for call in list(self.calls):
            call.cancel(STOPPING)

    def close(self) -> None:
        """Close after the last request. The store stays open for its owner. Threads that hang are
        not awaited."""
        self.index_loader.close()
        for pool in (self.pool, self._own_pool):
            pool.close()
        for batcher in (self.save, self.audit, self._find_key, self._settled):
            batcher.close()
        with suppress(EvervecError):
            self.save_key_uses()
        self.limiter.close()
