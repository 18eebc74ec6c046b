"""Problem documents (RFC 9457): what is wrong with a request, and what to do.

Every error response of the service has this form. `error` repeats the detail in the form that
clients of older systems expect. Tenants see no hosts, paths or account details: neither in an
error response nor in the error of a failed job.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from evervec import errors
from evervec.model.failures import FailureGroup
from evervec.model.jobs import Attempt, Job, TimelineEvent
from evervec.model.reports import Gate, Stats, WorkerState
from evervec.server.keys import Role

if TYPE_CHECKING:
    from evervec.server.access import Caller

log = logging.getLogger("evervec.server")

T = TypeVar("T", Job, Attempt, Stats, FailureGroup, Gate, WorkerState, TimelineEvent)

_REFUSED = re.compile(r"^.{1,40}? rejected the input\b")
_OWN = ("record is unreadable", "the text ", "text:", "title:", "metadata:")
"""beginnings of errors that concern only the tenant's own record"""
_TEXT_REFUSED = "the embedding provider rejected this text"
_HIDDEN = "embedding failed: details are visible with a platform admin's key"
_PROVIDER = {
    "outage": "the embedding provider is unavailable",
    "limited": "the embedding provider's rate limit is reached",
}
MEDIA_TYPE = "application/problem+json"
_MOST_ERRORS = 10
_LONGEST_STEP = 80
"""limits on the number of validation errors in a response, and on the length of their paths"""


class ProblemDocument(BaseModel):
    """The form of every error response (RFC 9457)."""

    type: str = Field(
        examples=["urn:evervec:InvalidRecord"],
        description="the library's error class, else `about:blank`; `/docs` lists them",
    )
    title: str = Field(examples=["Unprocessable Content"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["text: is empty"])
    error: str = Field(examples=["text: is empty"], description="short form of the error")
    request_id: str | None = Field(None, description="as in the header X-Request-Id")
    position: int | None = Field(None, description="in a batch: index of the rejected record")


class Problem(HTTPException):
    """An exception that becomes the response of the request."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        type: str = "about:blank",
        error: str | None = None,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.type = type
        self.error = error or detail
        self.members = members

    def document(self, request_id: str | None) -> dict[str, Any]:
        found = {
            "type": self.type,
            "title": HTTPStatus(self.status_code).phrase,
            "status": self.status_code,
            "detail": self.detail,
            "error": self.error,
            "request_id": request_id,
            **self.members,
        }
        return {name: value for name, value in found.items() if value is not None}

    def encoded(self, request_id: str | None) -> bytes:
        words = json.dumps(self.document(request_id), ensure_ascii=False)
        return words.encode("utf-8", "backslashreplace")

    def response(self, request_id: str | None) -> Response:
        return Response(self.encoded(request_id), self.status_code, self.headers, MEDIA_TYPE)


_PLAIN = {
    404: "not found: see /docs for all paths",
    405: "method not allowed for this path: see /docs",
}
_AGAIN = (
    " (Request-Timeout, server_seconds). A change can be retried: with the same id, If-Match or "
    "Idempotency-Key it is applied only once"
)
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (errors.InvalidRecord, 422),
    (errors.InvalidArgument, 422),
    (errors.ValueRefused, 422),
    (errors.InvalidTransition, 409),
    (errors.WaitTimeout, 409),
    (errors.JobFailed, 409),
    (errors.VersionMismatch, 409),
    (errors.Cancelled, 503),
    (errors.DeadlineExceeded, 504),
    (errors.EvervecError, 503),
)


KNOWN_ERRORS = (HTTPException, RequestValidationError, ValidationError, errors.EvervecError)
"""what `problem_of` handles"""


def error_classes() -> list[type[errors.EvervecError]]:
    """The library's errors, each behind its base. `urn:evervec:` and its name is the `type` of a
    problem document."""
    found = (kind for kind in vars(errors).values() if isinstance(kind, type))
    return [kind for kind in found if issubclass(kind, errors.EvervecError)]


def status_of(kind: type[Exception]) -> int | None:
    """The status of the response to an error of this class; None for errors of others."""
    return next((status for known, status in _STATUS if issubclass(kind, known)), None)


def problem_of(error: Exception, caller: Caller | None) -> Problem:
    """The problem for an error of evervec or of request parsing. If the service failed rather than
    the request, only platform admins see the original message: it may name hosts and paths."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, RequestValidationError):
        return Problem(422, _sentences(error.errors()))
    if isinstance(error, ValidationError):
        parts = error.errors(include_url=False, include_input=False)
        unreadable = any(part["type"] == "json_invalid" for part in parts)
        return Problem(400 if unreadable else 422, _sentences(parts))
    if isinstance(error, HTTPException):
        plain = _PLAIN.get(error.status_code, error.detail)
        return Problem(error.status_code, plain, headers=error.headers)
    status = status_of(type(error))
    if status is None:
        raise error
    position = getattr(error, "position", None)
    later = {"Retry-After": "1"} if status == 503 else {}
    name = f"urn:evervec:{type(error).__name__}"
    detail = str(error) + (_AGAIN if status == 504 else "")
    inner = status == 503 or isinstance(error, errors.StoreError)
    hidden = inner and not isinstance(error, errors.Cancelled)
    if hidden and (caller is None or caller.role is not Role.ADMIN):
        log.warning("a request failed: %s", detail)
        detail = _hidden(error)
    return Problem(status, detail, type=name, headers=later, position=position)


def _hidden(error: Exception) -> str:
    if isinstance(error, errors.ValueRefused):
        return "the store rejected a value of the record; nothing was saved: change the value"
    if isinstance(error, errors.IndexUnavailable):
        return "the vector index is unavailable: try again later"
    if isinstance(error, errors.EmbedderError):
        return "the embedding provider is unavailable: try again later"
    return "the store is unavailable: try again later"


def _sentences(parts: Sequence[Mapping[str, Any] | ErrorDetails]) -> str:
    sentences = [_sentence(part) for part in parts[:_MOST_ERRORS]]
    if len(parts) > _MOST_ERRORS:
        sentences.append(f"and {len(parts) - _MOST_ERRORS:,} more")
    return "; ".join(sentences)


def _sentence(part: Mapping[str, Any] | ErrorDetails) -> str:
    place = ".".join(str(step)[:_LONGEST_STEP] for step in part["loc"] if step != "body")
    return f"{place}: {part['msg']}" if place else str(part["msg"])


async def answer_problem(request: Request, error: Exception) -> Response:
    """FastAPI's handler for the errors that `problem_of` handles."""
    found = problem_of(error, request.scope.get("caller"))
    return found.response(request.scope.get("request_id"))


def redacted(caller: Caller, value: T) -> T:
    """A value with only what the caller may see. A failed job keeps the original error: a
    provider's response may name its customer, a store's error its path. Platform admins see the
    original; tenants see which part failed, and whether their own record is the cause."""
    if caller.role is Role.ADMIN:
        return value
    if isinstance(value, Job):
        worker = None if value.worker is None else _worker(value.worker)
        return replace(value, error=_reason(value.error), worker=worker)
    if isinstance(value, Attempt):
        return replace(value, error=_reason(value.error), worker=_worker(value.worker))
    if isinstance(value, WorkerState):  # how much it does for other tenants is not shown either
        return replace(value, worker=_worker(value.worker), held=0, done=0)
    if isinstance(value, TimelineEvent):
        who = None if value.worker is None else _worker(value.worker)
        return replace(value, error=_reason(value.error), worker=who)
    if isinstance(value, FailureGroup):
        said = _reason(value.example) or ""
        own = said == value.example  # only then is the common part free of details, too
        return replace(value, example=said, message=value.message if own else said)
    if isinstance(value, Gate):
        return replace(value, reason=_PROVIDER.get(value.state, "embedding is paused"))
    return value if value.gate is None else replace(value, gate=redacted(caller, value.gate))


def _reason(error: str | None) -> str | None:
    if error is None or error.startswith(_OWN):
        return error
    return _TEXT_REFUSED if _REFUSED.match(error) else _HIDDEN


def _worker(name: str) -> str:
    """A stable pseudonym for a worker that shows neither host nor process."""
    return f"worker-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
