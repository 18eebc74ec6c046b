"""Rate limits: token buckets, one per key.

A bucket holds `burst` tokens and gains `rate` tokens per second; a request takes one, or its cost.
A request that costs more than the bucket holds passes if there is at least one token; the bucket
then goes into debt. A new key starts with a full bucket. The buckets are in the memory of one
process, or in Redis for all processes of a service.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from evervec.errors import SettingsError
from evervec.runtime.packages import install_command
from evervec.settings import Settings

log = logging.getLogger("evervec")

_IDLE_SECONDS = 600.0
"""an unused key is forgotten after this time, and starts full again"""
_SWEEP_SECONDS = 60.0
_REDIS_TIMEOUT = 0.25
_LONGEST_DEBT = 60.0
"""seconds after which the next request passes, however much was charged"""
_LEFT_ALONE = 1.0
"""seconds for which Redis is not called after a failure"""

_SCRIPT = """
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'counted')
local tokens = tonumber(bucket[1]) or burst
local counted = tonumber(bucket[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - counted) * rate)
local left = tokens
if ARGV[5] == '1' then
    left = math.min(tokens, math.max(tokens - tonumber(ARGV[4]), -tonumber(ARGV[6])))
elseif tokens >= 1 then
    left = tokens - tonumber(ARGV[4])
end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.9f', left),
           'counted', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return string.format('%.9f', tokens)
"""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The decision of a limiter: true if the request may pass."""

    allowed: bool
    remaining: int
    """requests that would pass now"""
    retry_after: float = 0.0
    """seconds until the next one passes"""

    def __bool__(self) -> bool:
        return self.allowed


class Limiter(Protocol):
    """Counts requests by key. It is thread-safe and never raises: requests that cannot be
    counted pass, and increment `errors`."""

    rate: float
    burst: int
    errors: int
    blocks: bool
    """`allow` uses the network, so it must not run in an event loop"""

    def allow(self, key: str, cost: int = 1) -> Allowance: ...

    def charge(self, key: str, cost: int) -> None:
        """Take tokens for what is already done. The bucket may go into debt, of as many tokens as it
        gains in a minute at most."""

    def close(self) -> None: ...


def _decide(tokens: float, rate: float, cost: int) -> Allowance:
    """The decision for a bucket with `tokens`."""
    if tokens >= 1.0:
        return Allowance(True, max(0, math.floor(tokens - cost)))
    return Allowance(False, 0, (1.0 - tokens) / rate)


def _charged(tokens: float, rate: float, cost: int) -> float:
    """What is left of `tokens`."""
    return min(tokens, max(tokens - cost, -_LONGEST_DEBT * rate))


class MemoryLimiter:
    """Buckets in the memory of this process."""

    blocks = False

    def __init__(
        self, rate: float = 100.0, burst: int = 200, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate, self.burst = rate, burst
        self.errors = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}
        """by key: tokens, and the time of that count"""
        self._next_sweep = clock() + _SWEEP_SECONDS

    def allow(self, key: str, cost: int = 1) -> Allowance:
        with self._lock:
            tokens, now = self._counted(key)
            answer = _decide(tokens, self.rate, cost)
            self._buckets[key] = (tokens - cost if answer else tokens, now)
            return answer

    def charge(self, key: str, cost: int) -> None:
        with self._lock:
            tokens, now = self._counted(key)
            self._buckets[key] = (_charged(tokens, self.rate, cost), now)

    def _counted(self, key: str) -> tuple[float, float]:
        """The tokens of a bucket now, and the time."""
        now = self._clock()
        if now >= self._next_sweep:
            self._sweep(now)
        tokens, counted = self._buckets.get(key, (float(self.burst), now))
        return min(self.burst, tokens + max(0.0, now - counted) * self.rate), now

    def _sweep(self, now: float) -> None:
        self._next_sweep = now + _SWEEP_SECONDS
        kept = {k: b for k, b in self._buckets.items() if now - b[1] < _IDLE_SECONDS}
        self._buckets = kept

    def __len__(self) -> int:
        return len(self._buckets)

    def close(self) -> None:
        self._buckets.clear()


class RedisLimiter:
    """Buckets in Redis, shared by all limiters with the same `prefix`.

    A bucket is a hash, and a request is one script: Redis runs it atomically and with its own
    clock, so two processes cannot take the same token or disagree on the time. If Redis fails,
    requests pass and are counted in `errors`; Redis is not called for a moment, so that its outage
    does not slow down every request.
    """

    blocks = True

    def __init__(
        self, url: str, rate: float = 100.0, burst: int = 200, prefix: str = "evervec:limit:"
    ) -> None:
        self.rate, self.burst = rate, burst
        self.errors = 0
        self._prefix = prefix
        self._asked_again_at = 0.0
        self._counting = threading.Lock()
        try:
            import redis
        except ImportError as error:
            raise SettingsError(
                f"redis_url needs the package redis: {install_command('evervec[redis]')}"
            ) from error
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self._failures = (redis.RedisError, OSError)
        try:
            # no retries: a request should pass rather than wait
            self._redis: Any = redis.Redis.from_url(
                url,
                socket_timeout=_REDIS_TIMEOUT,
                socket_connect_timeout=_REDIS_TIMEOUT,
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError:  # its message may contain the URL with a password
            raise SettingsError(
                "redis_url is not a Redis URL: give redis://host:6379/0, rediss:// or unix://"
            ) from None
        self._take = self._redis.register_script(_SCRIPT)

    def allow(self, key: str, cost: int = 1) -> Allowance:
        tokens = self._tokens(key, cost, charges=0)
        return self._passed() if tokens is None else _decide(tokens, self.rate, cost)

    def charge(self, key: str, cost: int) -> None:
        if self._tokens(key, cost, charges=1) is None:
            self._passed()

    def _tokens(self, key: str, cost: int, charges: int) -> float | None:
        """The tokens of a bucket before some were taken; None if Redis fails."""
        if time.monotonic() < self._asked_again_at:
            return None
        kept, debt = int(_IDLE_SECONDS * 1000), _LONGEST_DEBT * self.rate
        try:
            values = (self.rate, self.burst, kept, cost, charges, debt)
            return float(self._take([self._prefix + key], values))
        except self._failures as error:
            log.warning("rate limits are not applied: Redis failed with %s", type(error).__name__)
            self._asked_again_at = time.monotonic() + _LEFT_ALONE
            return None

    def _passed(self) -> Allowance:
        with self._counting:
            self.errors += 1
        return Allowance(True, self.burst)

    def close(self) -> None:
        self._redis.close()


def make_limiter(settings: Settings) -> Limiter:
    rate, burst = settings.rate_per_second, settings.rate_burst
    if settings.redis_url:
        return RedisLimiter(settings.redis_url, rate, burst)
    return MemoryLimiter(rate, burst)
