"""Requests to the service, with retries, and with the library's errors.

All writes are idempotent: a record gets its id before it is sent, and other changes have an
`Idempotency-Key`.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from pydantic import TypeAdapter

from evervec import errors
from evervec.errors import AccessDenied, EvervecError, InvalidArgument, RateLimited, StoreError
from evervec.runtime.backoff import backoff
from evervec.runtime.http import Connections, HttpFailure, Response
from evervec.telemetry.traces import current

T = TypeVar("T")

_AGAIN = frozenset({429, 502, 503, 504})
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_LARGEST_PAGE = 1000
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
_BY_STATUS: Mapping[int, type[EvervecError]] = {401: AccessDenied, 403: AccessDenied}


class Connection:
    """An HTTP connection to the service, with timeout and retries."""

    def __init__(
        self, url: str, key: str | None, tenant: str | None, timeout: float, retries: int
    ) -> None:
        self.url = url.rstrip("/")
        self._retries = retries
        self._timeout = timeout
        self._tenant = {"tenant": tenant} if tenant else {}
        try:
            if not (key or "").isascii():
                raise ValueError("the API key has invalid characters")
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            self._http = Connections(self.url, headers, timeout)
        except ValueError as error:  # its text may contain the key
            raise InvalidArgument(
                f"invalid URL or API key of the service ({type(error).__name__}): give "
                "http://host:port and a key from `evervec keys create`"
            ) from None

    def ask(
        self,
        method: str,
        path: str,
        *,
        json_body: Any = None,
        content: bytes | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        waits: float = 0.0,
    ) -> Response:
        """Send a request, with retries. `waits`: additional seconds, for requests that ask the
        service to wait."""
        given = dict(headers or {})
        if trace := current():
            given["traceparent"] = trace
        if json_body is not None:
            content = to_json(json_body)
            given["Content-Type"] = "application/json"
        query = {k: v for k, v in (self._tenant | dict(params or {})).items() if v is not None}
        target = f"{path}?{urlencode(query, doseq=True)}" if query else path
        for tries in range(self._retries + 1):
            try:
                response = self._http.exchange(
                    method, target, content, self._timeout + waits, given, streamed=True
                )
            except (HttpFailure, TimeoutError) as error:
                if tries == self._retries:
                    raise StoreError(
                        f"the service {self.url} is unreachable ({type(error).__name__}): check "
                        "that it is running"
                    ) from error
                time.sleep(_pause(tries))
                continue
            if response.status not in _AGAIN or tries == self._retries:
                break
            time.sleep(max(_retry_after(response), _pause(tries)))
        if response.status >= 400:
            raise error_of(problem_in(response))
        return response

    def find(self, method: str, path: str, **asked: Any) -> Response | None:
        """Send a request like `ask`; None if what it concerns does not exist (404)."""
        try:
            return self.ask(method, path, **asked)
        except EvervecError as error:
            if getattr(error, "status", None) != 404:
                raise
            return None

    def get(self, shape: type[T], path: str) -> T:
        """A value of the service."""
        return read(shape, self.ask("GET", path).json())

    def items(
        self, path: str, name: str, limit: int, cursor: str | None = None, **which: Any
    ) -> list[dict[str, Any]]:
        """The first items of a list, or those after a cursor, page by page."""
        if limit < 1:
            raise InvalidArgument(f"limit must be at least 1, not {limit}")
        found: list[dict[str, Any]] = []
        while len(found) < limit:
            size = min(limit - len(found), _LARGEST_PAGE)
            params = {**which, "limit": size, "cursor": cursor}
            page = self.ask("GET", path, params=params).json()
            found += page[name]
            cursor = page["cursor"]
            if cursor is None:
                break
        return found

    def once(self, method: str, path: str, **asked: Any) -> Any:
        """Send a change with an Idempotency-Key, and return the JSON of its response."""
        headers = {"Idempotency-Key": uuid.uuid4().hex, **asked.pop("headers", {})}
        return self.ask(method, path, headers=headers, **asked).json()

    def close(self) -> None:
        self._http.close()


def read(shape: type[T], given: Any) -> T:
    """A value of the library from its JSON."""
    found: T = _adapter(shape).validate_python(given)
    return found


def record_path(kind: str, id: str | int) -> str:
    return f"/v1/records/{_segment(kind)}/{_segment(id)}"


def _segment(name: str | int) -> str:
    # a dot is encoded too: the segments `.` and `..` would be removed from the path
    return quote(str(name), safe="").replace(".", "%2E")


def to_json(value: Any) -> bytes:
    try:
        return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"the value cannot be encoded as JSON: {error}") from None


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be encoded as JSON")


def _pause(tries: int) -> float:
    return backoff(tries + 1, _FIRST_PAUSE, _LONGEST_PAUSE) * random.uniform(0.5, 1.0)


def _retry_after(response: Response) -> float:
    given = response.headers.get("retry-after", "")
    return float(given) if given.isdecimal() else 0.0


def problem_in(response: Response) -> dict[str, Any]:
    """The problem document of a response, or a substitute."""
    try:
        found = response.json()
        if isinstance(found, dict):
            return {"status": response.status, **found}
    except ValueError:
        pass
    return {"status": response.status, "detail": f"the service returned {response.status}"}


def error_of(problem: Mapping[str, Any]) -> EvervecError:
    """The library's error for a problem document, with its `status`."""
    error = _error_of(problem)
    error.status = problem.get("status")  # type: ignore[attr-defined]
    return error


def _error_of(problem: Mapping[str, Any]) -> EvervecError:
    detail, status = str(problem.get("detail", "")), problem.get("status", 0)
    name = str(problem.get("type", "")).removeprefix("urn:evervec:")
    if status == 429:
        return RateLimited(None, detail)
    if name in ("InvalidRecord", "QuotaExceeded"):
        found: errors.InvalidRecord = getattr(errors, name)(detail)
        found.position = problem.get("position")
        return found
    kind = getattr(errors, name, None) or _BY_STATUS.get(status)
    if isinstance(kind, type) and issubclass(kind, EvervecError):
        return kind(detail)
    return InvalidArgument(detail) if status < 500 else StoreError(detail)
