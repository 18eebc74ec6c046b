"""Rerankers as all searches of a process share them: within a time budget, and left alone for a
while after a failure, so that a reranker that is unavailable does not delay every search."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from evervec.embedders.base import BadAnswer, describe, ended
from evervec.errors import (
    DeadlineExceeded,
    EvervecError,
    InvalidArgument,
    InvalidInput,
    ProviderUnavailable,
    RateLimited,
)
from evervec.model.bounds import shown
from evervec.model.deadlines import check, deadline, left
from evervec.rerankers.base import BadScores, Reranker, read_scores, sigmoid
from evervec.runtime.backoff import Breaker
from evervec.runtime.threads import submit
from evervec.settings import Settings
from evervec.telemetry.counters import CALLS

log = logging.getLogger("evervec")

_LONGEST_PAUSE = 60.0
_MOST_LATE = 4
"""calls that took longer than their budget and still run; no more are made beside them"""
_MOST_KNOWN = 32


class NotReranked(Exception):
    """Why hits could not be reranked, in words that a client of a service may read."""


class SharedReranker:
    """Calls a reranker within the budget."""

    def __init__(self, reranker: Reranker, settings: Settings) -> None:
        self.name = reranker.name
        self._reranker = reranker
        self._seconds = settings.rerank_seconds
        self._breaker = Breaker(settings.backoff_seconds, _LONGEST_PAUSE)
        self._logits = bool(getattr(reranker, "logits", False))
        self._late: set[Future[list[float]]] = set()

    def check(self) -> None:
        """Raise `NotReranked` at once if it is left alone now."""
        if len(self._late) >= _MOST_LATE:
            raise NotReranked(f"{self.name} is still busy with earlier searches")
        self._breaker.check(NotReranked)

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """How well each text answers the query, from 0 to 1. Raises `NotReranked`."""
        scores = self._called(query, texts) if texts else []
        # a server that returns logits does not say so
        self._logits = self._logits or any(not 0.0 <= score <= 1.0 for score in scores)
        return [sigmoid(score) for score in scores] if self._logits else scores

    def _called(self, query: str, texts: Sequence[str]) -> list[float]:
        seconds = min(self._seconds, left() / 2)  # leaves time to answer without it

        def call() -> list[float]:
            try:
                with deadline(seconds):
                    return read_scores(ended(self._reranker.rerank(query, texts)), len(texts))
            except Exception:
                raise
            except BaseException as error:  # such as SystemExit, or asyncio's CancelledError
                raise RuntimeError(f"the reranker raised {error!r}") from error

        made = submit("evervec-rerank", call)
        try:
            scores = made.result(seconds)
        except Exception as error:  # noqa: BLE001 - whatever it is, the hits keep their order
            if not made.done():
                self._late.add(made)
                made.add_done_callback(self._late.discard)
            check()
            why, outcome = self._reason(error, seconds)
            CALLS.add(1, self.name, "rerank", outcome)
            log.warning("hits are not reranked: %s%s", why, _details(error))
            if not isinstance(error, InvalidInput) and (
                outcome != "late" or seconds >= self._seconds  # else it had too little time
            ):
                asked = error.retry_after if isinstance(error, RateLimited) else None
                self._breaker.failed(why, asked or 0.0)
            raise NotReranked(why) from None
        self._breaker.worked()
        CALLS.add(1, self.name, "rerank", "ok")
        return scores

    def _reason(self, error: BaseException, seconds: float) -> tuple[str, str]:
        """The reason without details, which may be confidential, and the outcome to count."""
        if isinstance(error, TimeoutError | DeadlineExceeded):
            return f"{self.name} did not respond within {seconds:.3g} s", "late"
        if isinstance(error, ProviderUnavailable):
            return f"{self.name} is unavailable", "outage"
        if isinstance(error, RateLimited):
            return f"the rate limit of {self.name} is reached", "limited"
        if isinstance(error, InvalidInput):
            return f"{self.name} rejected the texts", "error"
        if isinstance(error, BadScores | BadAnswer):
            return f"{self.name} gave an invalid answer", "error"
        return f"{self.name} failed", "error"

    def close(self) -> None:
        if hasattr(self._reranker, "close"):
            self._reranker.close()


def _details(error: BaseException) -> str:
    """For the log. The message of a foreign exception may contain a key."""
    if isinstance(error, TimeoutError | DeadlineExceeded):
        return ""
    said = describe(error) if isinstance(error, EvervecError) else type(error).__name__
    return f" ({said})"


class RerankerRegistry:
    """The rerankers of a process, by name or object."""

    def __init__(self, settings: Settings, open: Callable[[str, Settings], Reranker]) -> None:
        self._settings = settings
        self._open = open
        self._known: dict[object, tuple[SharedReranker, object]] = {}
        self._opened: list[SharedReranker] = []
        self._lock = threading.Lock()
        self._default = self._of(settings.reranker) if settings.reranker else None

    def of(self, given: Any) -> SharedReranker | None:
        """The reranker that a search asked for; None: it is not to be reranked."""
        if given is None:
            return self._default
        if given is False:
            return None
        if given is True:
            if self._default is None:
                raise InvalidArgument("rerank: no reranker is set; set reranker=, or give one")
            return self._default
        return self._of(given)

    def _of(self, given: Any) -> SharedReranker:
        # the object is kept, so that no other has its id
        key = given if isinstance(given, str) else id(given)
        with self._lock:
            if key not in self._known:
                made = self._opened_by(given) if isinstance(given, str) else _checked(given)
                shared = SharedReranker(made, self._settings)
                if isinstance(given, str):
                    self._opened.append(shared)
                if len(self._known) >= _MOST_KNOWN:
                    del self._known[next(iter(self._known))]
                self._known[key] = (shared, given)
            return self._known[key][0]

    def _opened_by(self, name: str) -> Reranker:
        return self._open(name, self._settings)

    def close(self) -> None:
        for shared in self._opened:
            shared.close()


def _checked(given: Any) -> Reranker:
    if not isinstance(given, Reranker) or not isinstance(given.name, str):
        raise InvalidArgument(
            "rerank must be True, False, a name, or an object with name and rerank(query, texts), "
            f"not {shown(given)}"
        )
    return given
