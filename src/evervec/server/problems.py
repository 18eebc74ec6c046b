"""Problem documents (RFC 9457): what is wrong with a request, and what to do.

Every error of the service has this shape. `error` repeats the title in the words that
clients of the older systems look for.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from evervec import errors
from evervec.server.keys import Role

if TYPE_CHECKING:
    from evervec.server.access import Caller

log = logging.getLogger("evervec.server")

MEDIA_TYPE = "application/problem+json"
_MOST_TOLD = 10
_LONGEST_STEP = 80
"""what is told of the parts of a request that are wrong, however many and long they are"""


class ProblemDocument(BaseModel):
    """What every error looks like (RFC 9457)."""

    type: str = Field(
        examples=["urn:evervec:InvalidRecord"],
        description="the library's error, if it is one of those; else `about:blank`",
    )
    title: str = Field(examples=["Unprocessable Content"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["text: is empty"])
    error: str = Field(examples=["text: is empty"], description="what is wrong, in a few words")
    request_id: str | None = Field(None, description="as in the header X-Request-Id")
    position: int | None = Field(None, description="of a batch: the record that was refused")


class Problem(HTTPException):
    """Raised anywhere below a route, it becomes the answer."""

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
    404: "there is nothing at this path: /docs lists what there is",
    405: "this path does not take that method: /docs lists what there is",
}
_AGAIN = (
    " (Request-Timeout, server_seconds). A change can be sent again: with the same id, If-Match or "
    "Idempotency-Key it is not made twice"
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


def is_known(error: Exception) -> bool:
    """Whether `problem_of` has an answer to an error."""
    return isinstance(error, HTTPException | ValidationError | errors.EvervecError)


def problem_of(error: Exception, caller: Caller | None) -> Problem:
    """The answer to an error of evervec's own, or of reading a request. Of what failed in the
    service, as opposed to the request, nobody but a platform admin is shown the words: they may
    name hosts and paths."""
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
    for kind, status in _STATUS:
        if isinstance(error, kind):
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
    raise error


def _hidden(error: Exception) -> str:
    if isinstance(error, errors.ValueRefused):
        return "the store refused a value of the record, so nothing of it was saved: change it"
    if isinstance(error, errors.IndexUnavailable):
        return "the vector index does not answer: ask again later"
    if isinstance(error, errors.EmbedderError):
        return "the embedding provider does not answer: ask again later"
    return "the store does not answer: ask again later"


def _sentences(parts: Sequence[Mapping[str, Any] | ErrorDetails]) -> str:
    told = [_sentence(part) for part in parts[:_MOST_TOLD]]
    if len(parts) > _MOST_TOLD:
        told.append(f"and {len(parts) - _MOST_TOLD:,} more")
    return "; ".join(told)


def _sentence(part: Mapping[str, Any] | ErrorDetails) -> str:
    place = ".".join(str(step)[:_LONGEST_STEP] for step in part["loc"] if step != "body")
    return f"{place}: {part['msg']}" if place else str(part["msg"])


async def answer_problem(request: Request, error: Exception) -> Response:
    """FastAPI's handler for whatever `problem_of` knows."""
    found = problem_of(error, request.scope.get("caller"))
    return found.response(request.scope.get("request_id"))


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route for its OpenAPI: these, and those that any request may meet."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
    return {
        status: {"description": _MEANING[status], "content": content}
        for status in sorted({*statuses, *_ANYWHERE})
    }


def described(name: str, place: str, meaning: str, **shape: Any) -> dict[str, Any]:
    """A parameter for OpenAPI that a route reads itself."""
    text = {"type": "string", **(shape or ({"minLength": 1} if place == "query" else {}))}
    return {"name": name, "in": place, "required": False, "description": meaning, "schema": text}


_MEANING = {
    400: "The body cannot be read: not JSON, not UTF-8, or nested too deep.",
    401: "No key, or one that opens nothing.",
    403: "The key may not do this, or not for that tenant.",
    404: "There is no such thing in the tenant.",
    409: "It is not in a state for this, or not there yet.",
    412: "The record is no longer as `If-Match` says.",
    413: "The body is larger than `server_body_mb`.",
    415: "The body is neither JSON nor, for a batch, NDJSON.",
    422: "A part of the request has a value that cannot be used; `detail` names it.",
    429: "The agent asks more often than it may; `Retry-After` says when to come again.",
    500: "A mistake of the service's own; its log has the `request_id`.",
    503: "The store does not answer, or there are too many requests; nothing was done.",
    504: "It took longer than `Request-Timeout` or `server_seconds`; `detail` says what was done.",
}
_ANYWHERE = (400, 401, 403, 413, 422, 429, 500, 503, 504)
