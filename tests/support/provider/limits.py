"""What the provider allows in a window of time, and what its headers say of that."""

import itertools
import math
import threading
from collections.abc import Callable
from email.utils import formatdate

from support.provider.behaviour import USUAL_LIMITS, Behaviour
from support.provider.formats import Asked, Complaint, go_duration


class Limits:
    """What was used of the present window."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._numbers = itertools.count(1)
        self._window_lock = threading.Lock()
        self._window_ends = -math.inf
        self._used = {"requests": 0, "tokens": 0}

    def allow(self, asked: Asked, behaviour: Behaviour) -> None:
        """Count a call, or raise what is too much."""
        if behaviour.quota_used_up:
            message = (
                "You exceeded your current quota, please check your plan and billing details. "
                "For more information on this error, read the docs: "
                "https://platform.openai.com/docs/guides/error-codes/api-errors."
            )
            raise Complaint(429, message, "insufficient_quota", "insufficient_quota")
        now = self._clock()
        if now < behaviour.storm_until:
            limit = USUAL_LIMITS["requests"]
            wait = behaviour.storm_until - now
            raise _too_many(asked.model, "requests", limit, limit, 1, wait)
        with self._window_lock:
            if now >= self._window_ends:
                self._window_ends = now + behaviour.window
                self._used = {"requests": 0, "tokens": 0}
            wanted = {"requests": 1, "tokens": asked.tokens}
            for of, most in _limits(behaviour).items():
                used = self._used[of]
                if most is not None and used + wanted[of] > most:
                    wait = self._window_ends - now
                    raise _too_many(asked.model, of, most, used, wanted[of], wait)
            for of, amount in wanted.items():
                self._used[of] += amount

    def headers(
        self, path: str, behaviour: Behaviour, complaint: Complaint | None = None
    ) -> dict[str, str]:
        """Those of OpenAI; for others only what a 429 says of when to come back."""
        headers: dict[str, str] = {}
        wait = complaint.wait if complaint else None
        if wait is not None:
            if "retry-after" in behaviour.tells:
                headers["retry-after"] = str(max(1, math.ceil(wait)))
            if "retry-after-ms" in behaviour.tells:
                headers["retry-after-ms"] = str(max(1, math.ceil(wait * 1000)))
            if "retry-after-date" in behaviour.tells:
                later = math.ceil(self._clock() + wait)
                headers["retry-after"] = formatdate(later, usegmt=True)
        if path.startswith("/v1"):
            headers["x-request-id"] = f"req_{next(self._numbers):012x}"
            if "x-ratelimit" in behaviour.tells:
                headers |= self._rates(behaviour, complaint)
        return headers

    def _rates(self, behaviour: Behaviour, complaint: Complaint | None) -> dict[str, str]:
        with self._window_lock:
            left = max(0.0, self._window_ends - self._clock())
            used = dict(self._used) if left else {"requests": 0, "tokens": 0}
        headers = {}
        for of, limit in _limits(behaviour).items():
            remaining, reset = USUAL_LIMITS[of], 0.0
            if limit is not None:
                remaining, reset = max(0, limit - used[of]), left if used[of] else 0.0
            if complaint and complaint.wait is not None and complaint.of == of:
                remaining = 0 if limit is None else remaining
                reset = complaint.wait
            headers[f"x-ratelimit-limit-{of}"] = str(USUAL_LIMITS[of] if limit is None else limit)
            headers[f"x-ratelimit-remaining-{of}"] = str(remaining)
            headers[f"x-ratelimit-reset-{of}"] = go_duration(reset)
        return headers


def _limits(behaviour: Behaviour) -> dict[str, int | None]:
    return {"requests": behaviour.requests, "tokens": behaviour.tokens}


def _too_many(model: str, of: str, limit: int, used: int, wanted: int, wait: float) -> Complaint:
    short = {"requests": "RPM", "tokens": "TPM"}[of]
    message = (
        f"Rate limit reached for {model} in organization org-evervec on {of} per min ({short}): "
        f"Limit {limit}, Used {used}, Requested {wanted}. Please try again in "
        f"{go_duration(wait)}. Visit https://platform.openai.com/account/rate-limits to learn more."
    )
    return Complaint(429, message, of, "rate_limit_exceeded", wait=wait, of=of)
