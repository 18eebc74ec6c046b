"""Common parts of HTTP providers: pooled connections, deadlines, and the classification of
failures.

A provider that cannot be reached, refuses the key or does not have the model is unavailable. A
provider that fails or hangs may do so because of a text: `embedders.base` finds out with a probe.
"""

from __future__ import annotations

import json
import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from evervec.embedders.base import PROBE, Answer, BadAnswer
from evervec.errors import (
    EmbedderError,
    InvalidInput,
    ProviderUnavailable,
    RateLimited,
    SettingsError,
)
from evervec.model.deadlines import check, exceeded, left
from evervec.runtime.http import CannotConnect, ConnectionLost, Connections, TooLong

_DURATION = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)(ms|us|µs|ns|h|m|s)")
_UNIT = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


class ProviderFault(EmbedderError):
    """The embedding provider failed or did not answer in time."""


@dataclass(slots=True)
class Reply:
    """A provider's answer: its status, headers, and body parsed as JSON."""

    status: int
    headers: Mapping[str, str]
    content: Any
    """None if the body is not JSON"""
    text: str


class Http:
    """A pooled client for one provider. `secret` never appears in its errors."""

    def __init__(self, name: str, url: str, seconds: float, secret: str = "") -> None:
        self.name = name
        self.url = url.rstrip("/")
        self._shown = re.sub(r"//[^/]*@", "//…@", self.url)
        self._secret = secret = secret.strip()  # removes the trailing newline of a file
        if not (secret.isascii() and secret.isprintable()):
            raise SettingsError(f"the API key for {name} has invalid characters: correct it")
        self._seconds = seconds
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        try:
            self._connections = Connections(self.url, headers)
        except ValueError as error:
            raise ProviderUnavailable(f"{name} at {self._shown} cannot be used: {error}") from None

    def get(self, path: str, seconds: float | None = None) -> Reply:
        return self._request("GET", path, None, seconds)

    def post(self, path: str, payload: Mapping[str, Any], seconds: float | None = None) -> Reply:
        return self._request("POST", path, _written(payload), seconds)

    def _request(self, method: str, path: str, body: bytes | None, seconds: float | None) -> Reply:
        check()
        limit = left(self._seconds if seconds is None else seconds)
        exchange = self._connections.exchange
        try:
            try:
                answer = exchange(method, path, body, limit)
            except ConnectionLost:  # a kept connection that the server had closed
                answer = exchange(method, path, body, limit)
        except CannotConnect as error:
            raise exceeded() or ProviderUnavailable(
                f"{self.name} is unreachable at {self._shown} ({error}): check that it is running"
            ) from None
        except TimeoutError:
            raise exceeded() or ProviderFault(
                f"{self.name} did not respond within {limit:g} s"
            ) from None
        except ConnectionLost as error:
            raise ProviderFault(f"the connection to {self.name} failed: {error}") from None
        except TooLong as error:
            raise BadAnswer(f"invalid response from {self.name}: {error}") from None
        status, headers, content = answer
        return Reply(status, headers, _read(content), content[:500].decode("latin-1"))

    def checked(self, reply: Reply, message: str, form: type | tuple[type, ...] = dict) -> Any:
        """The content of a successful reply, of that form; otherwise raises the error that the
        status and `message`, the provider's text, stand for."""
        said = " ".join((message or reply.text or "empty response").split())
        said = (said.replace(self._secret, "…") if self._secret else said)[:300]
        status = reply.status
        if status == 200:
            if not isinstance(reply.content, form):
                raise BadAnswer(f"the response from {self.name} is not JSON: {said}")
            return reply.content
        if status in (401, 403):
            raise ProviderUnavailable(
                f"{self.name} rejected the API key ({status}): set a valid one"
            )
        if status == 404 or 300 <= status < 400:
            raise ProviderUnavailable(f"{self.name} at {self._shown} answered {status}: {said}")
        if status == 429:
            raise RateLimited(
                retry_after(reply.headers), f"{self.name}: rate limit reached: {said}"
            )
        if status in (400, 413, 422):
            raise InvalidInput((), f"{self.name} rejected the input: {said}")
        raise ProviderFault(f"{self.name} answered {status}: {said}")

    def close(self) -> None:
        self._connections.close()


class HttpEmbedder(ABC):
    """What the embedders of HTTP providers share."""

    model: str
    _http: Http

    @abstractmethod
    def ask(self, texts: Sequence[str]) -> Answer: ...

    @abstractmethod
    def ask_query(self, text: str) -> Answer: ...

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self.ask_query(text).vectors

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self.ask(texts).vectors

    def close(self) -> None:
        self._http.close()

    def _ask_dimensions(self) -> int:
        """The dimensions of a model that is not known by name, found by a call to the provider."""
        try:
            return len(self.embed_query(PROBE)[0])
        except EmbedderError as error:
            self.close()
            raise SettingsError(
                f"the dimensions of {self.model!r} are unknown, and {self._http.name} did not "
                f"report them ({error}): set dimensions="
            ) from None


def _written(payload: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(payload)
    except TypeError:  # half a surrogate pair: the provider may accept it
        return json.dumps(payload).encode()


def _read(content: bytes) -> Any:
    """Parse JSON. 64 vectors of 1024 numbers take orjson 2 ms, and the standard library 20 ms."""
    for read in (orjson.loads, json.loads):  # the second accepts NaN, which servers in Python write
        try:
            return read(content)
        except ValueError:
            continue
    return None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a provider asks to wait; None if it does not say."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / unit
            return max(0.0, seconds) if math.isfinite(seconds) else None
        except ValueError:
            pass
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except ValueError:
            pass
    return limit_pause(headers) or None


def limit_pause(headers: Mapping[str, str]) -> float:
    """Seconds until an exhausted limit is reset, by the `x-ratelimit` headers."""
    used_up = [
        what
        for what in ("requests", "tokens")
        if headers.get(f"x-ratelimit-remaining-{what}") == "0"
    ]
    return max((duration(headers.get(f"x-ratelimit-reset-{w}", "")) for w in used_up), default=0.0)


def duration(text: str) -> float:
    """The seconds of a duration such as `6m0s`, `1s` or `120ms`; plain numbers are seconds."""
    try:
        return max(0.0, float(text))
    except ValueError:
        return sum(float(number) * _UNIT[unit] for number, unit in _DURATION.findall(text))
