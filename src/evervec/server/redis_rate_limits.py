"""Rate limits shared by all processes of a service, in Redis.

A bucket is a hash, and a request is one script: Redis runs it atomically and with its own clock,
so two processes cannot take the same token or disagree on the time. If Redis fails, requests pass
and are counted in `errors`; Redis is not called for a moment, so that its outage does not slow
down every request.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from evervec.errors import SettingsError
from evervec.server.rate_limits import IDLE_SECONDS, Allowance, judged

log = logging.getLogger("evervec")

_TIMEOUT = 0.25
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
if tokens >= 1 then left = tokens - tonumber(ARGV[4]) end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.9f', left),
           'counted', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return string.format('%.9f', tokens)
"""


class RedisLimiter:
    """Buckets in Redis, shared by all limiters with the same `prefix`."""

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
                "redis_url needs the package redis: pip install 'evervec[redis]'"
            ) from error
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self._failures = (redis.RedisError, OSError)
        try:
            # no retries: a request should pass rather than wait
            self._redis: Any = redis.Redis.from_url(
                url,
                socket_timeout=_TIMEOUT,
                socket_connect_timeout=_TIMEOUT,
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError:  # its message may contain the URL with a password
            raise SettingsError(
                "redis_url is not a Redis URL: give redis://host:6379/0, rediss:// or unix://"
            ) from None
        self._take = self._redis.register_script(_SCRIPT)

    def allow(self, key: str, cost: int = 1) -> Allowance:
        if time.monotonic() < self._asked_again_at:
            return self._passed()
        try:
            values = (self.rate, self.burst, int(IDLE_SECONDS * 1000), cost)
            return judged(float(self._take([self._prefix + key], values)), self.rate, cost)
        except self._failures as error:
            log.warning("rate limits are not applied: Redis failed with %s", type(error).__name__)
            self._asked_again_at = time.monotonic() + _LEFT_ALONE
            return self._passed()

    def _passed(self) -> Allowance:
        with self._counting:
            self.errors += 1
        return Allowance(True, self.burst)

    def close(self) -> None:
        self._redis.close()
