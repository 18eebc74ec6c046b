"""Live pages: the changing part of a page, rendered once for all who look at it.

Everybody who may see the same and looks at the same address shares a feed. A feed renders its page
when the store has changed, at most every two seconds, and sends it if it differs from before. All
feeds together take at most a small share of the time, which tenants divide equally: the more pages of
a tenant are open and the longer they take to render, the less often each of that tenant is.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

from evervec.server.deadlines import current_call, own_call
from evervec.server.problems import KNOWN_ERRORS, Problem
from evervec.server.service import Service

log = logging.getLogger("evervec.server")

LEAST_SECONDS = 2.0
"""between two renderings of a page"""
MOST_SECONDS = 5.0
"""after which a page is rendered although no record has changed: jobs may have, and time passes"""
_SHARE = 0.03
"""of the time that rendering may take, for all feeds together"""
MOST_FEEDS = 64
"""different pages that a tenant has open"""
LONGEST = 1_000_000
"""characters of what a feed keeps: a longer page is not live"""
_LONGEST_PAUSE = 60.0
_KEEP_ALIVE = 15.0

Render = Callable[[], Awaitable[str]]


class _Feed:
    """One page, for all who look at it."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.number = 0
        self.event = b""
        self.watchers = 0
        self.joined = 0
        """how many ever began to watch"""
        self.known_to = 0
        """`joined` when the rendering of `event` began: the page that a later watcher was given
        may be newer than `event`, and must not go back to it"""
        self.changed = asyncio.Event()

    def publish(self, event: bytes, joined: int) -> None:
        """Send what was rendered since `joined` watchers, unless all of them have it."""
        if not self.watchers:
            return
        if event != self.event or joined != self.known_to:
            self.event, self.known_to = event, joined
            self.number += 1
            self.changed.set()
            self.changed = asyncio.Event()


class Live:
    """The feeds of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._settings = service.ev.settings
        self._feeds: dict[Hashable, _Feed] = {}
        self._watchers: Counter[str] = Counter()
        """by tenant"""
        self._open: Counter[str] = Counter()
        """feeds that somebody watches, by tenant"""
        self._tasks: set[asyncio.Task[None]] = set()
        self._mark: asyncio.Future[int] | None = None
        self._mark_until = 0.0

    def check(self, tenant: str, key: Hashable) -> None:
        """Raise a `Problem` if a tenant, or all together, would leave no place for requests that
        end, as each live page is a request in progress; or if the tenant has too many different
        ones, as each is rendered and kept."""
        settings = self._settings
        if 2 * self._watchers[tenant] >= settings.server_tenant_requests:
            what = f"this tenant has {self._watchers[tenant]:,} live pages (server_tenant_requests)"
        elif 2 * self._watchers.total() >= settings.server_requests:
            what = f"the service has {self._watchers.total():,} live pages (server_requests)"
        elif self._are_too_many(tenant, self._feeds.get(key)):
            what = f"this tenant has {MOST_FEEDS} different live pages"
        else:
            return
        raise Problem(429, f"{what}: close some", headers={"Retry-After": "10"})

    async def stream(self, tenant: str, key: Hashable, render: Render) -> AsyncIterator[bytes]:
        """Server-sent events with the page's changing part, until the client or the service
        goes."""
        call = current_call()
        assert call is not None
        feed = self._feeds.get(key)
        if self._are_too_many(tenant, feed):  # others were opened since `check`
            yield _event("cannot be updated: too many pages are open", "stale")
            return
        if feed is None:
            feed = self._feeds[key] = _Feed(tenant)
            # without the request's deadline: the feed outlives it
            task = asyncio.get_running_loop().create_task(
                self._run(key, feed, render), context=contextvars.Context()
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._open[tenant] += not feed.watchers
        feed.watchers += 1
        feed.joined += 1
        place, sent = feed.joined, b""
        seen = feed.number
        self._watchers[tenant] += 1
        try:
            yield b"retry: 3000\n\n"
            while not self._service.stopping.is_set() and not call.deadline.over:
                call.restart()
                if feed.number != seen:
                    seen = feed.number
                    if feed.known_to >= place and feed.event != sent:
                        sent = feed.event
                        yield sent
                    continue
                await call.pause(_KEEP_ALIVE, feed.changed, self._service.stopping)
                if feed.number == seen:
                    yield b": still here\n\n"
        finally:
            feed.watchers -= 1
            if not feed.watchers:
                feed.event = b""
                _decrease(self._open, tenant)
            _decrease(self._watchers, tenant)

    async def _run(self, key: Hashable, feed: _Feed, render: Render) -> None:
        clock = asyncio.get_running_loop().time
        try:
            seen: int | None = None
            due, pause = float("-inf"), LEAST_SECONDS
            while feed.watchers and not self._service.stopping.is_set():
                mark = await self._current_mark()
                now = clock()
                if mark != seen or now >= due:
                    joined = feed.joined
                    feed.publish(await self._rendered(render), joined)
                    seen, rendered = mark, clock()
                    pause = self._pause(feed, rendered - now)
                    due = rendered + max(MOST_SECONDS, pause)
                await asyncio.sleep(pause)
        finally:
            if self._feeds.get(key) is feed:
                del self._feeds[key]

    def _are_too_many(self, tenant: str, feed: _Feed | None) -> bool:
        """Whether a tenant may not look at another page."""
        is_watched = feed is not None and feed.watchers > 0
        return self._open[tenant] >= MOST_FEEDS and not is_watched

    def _pause(self, feed: _Feed, took: float) -> float:
        """Seconds until a page that took so long is rendered again."""
        parts = max(1, self._open[feed.tenant]) * max(1, len(self._open))
        return min(_LONGEST_PAUSE, max(LEAST_SECONDS, took * parts / _SHARE))

    async def _rendered(self, render: Render) -> bytes:
        try:
            with own_call(self._settings.server_seconds, self._service.calls):
                made = await render()
            if len(made) > LONGEST:
                return _event("is too long to be updated: load it again", "stale")
            return _event(made)
        except KNOWN_ERRORS as error:
            log.debug("a live page was not rendered: %s", error)
        except Exception:
            log.exception("a live page was not rendered")
        return _event("cannot be updated at present", "stale")

    async def _current_mark(self) -> int | None:
        """The store's mark, read once for all feeds."""
        now = asyncio.get_running_loop().time()
        if self._mark is None or now >= self._mark_until:
            self._mark = asyncio.ensure_future(self._service.run(self._service.ev.store.mark))
            self._mark_until = now + LEAST_SECONDS / 2
        try:
            return await asyncio.shield(self._mark)
        except KNOWN_ERRORS:
            return None


def _decrease(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


def _event(data: str, name: str = "") -> bytes:
    lines = data.replace("\r", "").split("\n")
    head = f"event: {name}\n" if name else ""
    return "".join([head, *(f"data: {line}\n" for line in lines), "\n"]).encode()
