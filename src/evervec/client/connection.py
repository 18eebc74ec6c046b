"""Requests to the service, with retries, and with the library's errors.

All writes are idempotent: a record gets its id before it is sent, and other changes have an
`Idempotency-Key`.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Generator, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

from pydantic import TypeAdapter

from evervec import errors
from evervec.errors import (
    AccessDenied,
    EvervecError,
    InvalidArgument,
    RateLimited,
    StoreClosed,
    StoreError,
)
from evervec.records.drafts import existing_id
from evervec.runtime.backoff import backoff
from evervec.runtime.http import ConnectionsClosed, Response
from evervec.telemetry.traces import current

T = TypeVar("T")
C = TypeVar("C")

_AGAIN = frozenset({429, 502, 503, 504})
_REFUSED = frozenset({429})
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
LARGEST_PAGE = 1000
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
_BY_STATUS: Mapping[int, type[EvervecError]] = {401: AccessDenied, 403: AccessDenied}


class Send(NamedTuple):
    """A request to send."""

    method: str
    target: str
    content: bytes | None
    seconds: float
    """the longest silence of the service"""
    headers: Mapping[str, str]


class Pause(NamedTuple):
    """Seconds to wait before the next step."""

    seconds: float


Step = Send | Pause
Sent = Response | Exception | None
"""what came of a step: a response, an error of the network, or nothing after a pause"""
Call: TypeAlias = Generator[Step, Sent, T]
"""A call of the service without its network: it yields steps, which a client takes, blocking or
awaiting, and returns the result."""


class Service:
    """The rules of requests to a service: targets, headers, retries and errors."""

    def __init__(
        self, url: str, key: str | None, tenant: str | None, timeout: float, retries: int
    ) -> None:
        self.url = url.rstrip("/")
        self.timeout = timeout
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._key = key or ""
        self._retries = retries
        self._tenant = {"tenant": tenant} if tenant else {}

    def connect(self, open: Callable[[str, Mapping[str, str], float], C]) -> C:
        """The connections to the service, opened by this class."""
        try:
            if not (self._key.isascii() and self._key.isprintable()):
                raise ValueError("the API key has invalid characters")
            return open(self.url, self.headers, self.timeout)
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
        scoped: bool = True,
        repeats: bool = True,
    ) -> Call[Response]:
        """Send a request, with retries. `waits`: additional seconds, for requests that ask the
        service to wait. `scoped`: with the client's tenant. `repeats`: False for one that must not
        be carried out twice; then it is only repeated after it was refused for its rate."""
        given = dict(headers or {})
        if trace := current():
            given["traceparent"] = trace
        if json_body is not None:
            content = to_json(json_body)
            given["Content-Type"] = "application/json"
        all_params = (self._tenant if scoped else {}) | dict(params or {})
        query = {k: v for k, v in all_params.items() if v is not None}
        target = f"{path}?{urlencode(query, doseq=True)}" if query else path
        send = Send(method, target, content, self.timeout + waits, given)
        for tries in range(self._retries + 1):
            found = yield send
            if isinstance(found, Response):
                if found.status not in (_AGAIN if repeats else _REFUSED) or tries == self._retries:
                    break
                yield Pause(max(_retry_after(found), _pause(tries)))
            elif isinstance(found, ConnectionsClosed):
                raise StoreClosed(f"this client of {self.url} is closed: make another") from None
            elif tries == self._retries or not repeats:
                raise StoreError(
                    f"the service {self.url} is unreachable ({type(found).__name__}): check "
                    "that it is running"
                ) from found
            else:
                yield Pause(_pause(tries))
        assert isinstance(found, Response)
        if found.status >= 400:
            raise error_of(problem_in(found))
        return found

    def find(self, method: str, path: str, **asked: Any) -> Call[Response | None]:
        """Send a request like `ask`; None if what it concerns does not exist (404)."""
        try:
            return (yield from self.ask(method, path, **asked))
        except EvervecError as error:
            if getattr(error, "status", None) != 404:
                raise
            return None

    def get(self, shape: type[T], path: str) -> Call[T]:
        """A value of the service."""
        return read(shape, (yield from self.ask("GET", path)).json())

    def page(
        self, path: str, limit: int, cursor: str | None, **which: Any
    ) -> Call[tuple[dict[str, Any], str | None]]:
        """A page of a list, and the cursor of the next; None after the last."""
        if limit < 1:
            raise InvalidArgument(f"limit must be at least 1, not {limit}")
        params = {**which, "limit": min(limit, LARGEST_PAGE), "cursor": cursor}
        page = (yield from self.ask("GET", path, params=params)).json()
        return page, page["cursor"]

    def items(
        self, path: str, name: str, limit: int, cursor: str | None = None, **which: Any
    ) -> Call[list[dict[str, Any]]]:
        """The first items of a list, or those after a cursor, page by page."""
        page, cursor = yield from self.page(path, limit, cursor, **which)
        found: list[dict[str, Any]] = page[name]
        while cursor is not None and len(found) < limit:
            page, cursor = yield from self.page(path, limit - len(found), cursor, **which)
            found += page[name]
        return found

    def once(self, method: str, path: str, **asked: Any) -> Call[Any]:
        """Send a change with an Idempotency-Key, and return the JSON of its response."""
        headers = {"Idempotency-Key": uuid.uuid4().hex, **asked.pop("headers", {})}
        return (yield from self.ask(method, path, headers=headers, **asked)).json()


def read(shape: type[T], given: Any) -> T:
    """A value of the library from its JSON."""
    found: T = _adapter(shape).validate_python(given)
    return found


def record_path(kind: str, id: str | int) -> str:
    return f"/v1/records/{_segment(kind)}/{_segment(existing_id(id))}"


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
