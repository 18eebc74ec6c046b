"""Push mode: a scheduler starts a dispatch, and each job arrives as a delivery.

A delivery carries a QStash signature or the worker secret; a scheduler carries the cron secret.
Only if neither API keys nor secrets exist may clients on this machine omit them. Secrets are
compared in constant time, never logged, and checked before the body is read.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from typing import Annotated, NoReturn

import jwt
from fastapi import Query
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from evervec.server.answers import Shown, answer, shows
from evervec.server.origin import is_local, own_address
from evervec.server.problems import Problem
from evervec.server.requests import bearer_of, read_json
from evervec.server.router import Routes
from evervec.server.service import Service
from evervec.settings import Settings
from evervec.worker.push import WORKER_PATH, Delivered, Dispatched, configured

router = Routes("push")

_CLAIMS = ["iss", "sub", "exp", "nbf", "body"]
_SIGNING_KEYS = ("qstash_current_signing_key", "qstash_next_signing_key")
_SECRETS = ("cron_secret", "worker_secret", *_SIGNING_KEYS)

Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum number of jobs.")]


@shows(Dispatched)
class DispatchedOut(Shown):
    """The result of a dispatch."""


class DeliveryIn(BaseModel):
    """One claimed job."""

    model_config = ConfigDict(extra="forbid")

    job_id: int = Field(ge=0, lt=1 << 63)
    token: str = Field(min_length=1, max_length=200)


@shows(Delivered)
class DeliveredOut(Shown):
    """The result of a delivery."""


@router.on("POST /internal/dispatch", "Dispatch due jobs", DispatchedOut)
async def dispatch_jobs(request: Request, limit: Limit = 10) -> Response:
    """For a scheduler: claims jobs and sends each to the worker endpoint, through QStash or by a
    direct request. Requires `CRON_SECRET`."""
    service: Service = request.app.state.service
    settings = service.ev.settings
    await check_scheduler(request, service)
    # in a separate thread: direct requests come back to this service and need its threads
    done = await asyncio.to_thread(
        service.ev.dispatcher.dispatch, limit, public_url(request, settings)
    )
    return answer(DispatchedOut, done)


@router.on(
    "POST /internal/worker",
    "Run a dispatched job",
    DeliveredOut,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": DeliveryIn.model_json_schema()}},
        }
    },
)
async def deliver_job(request: Request) -> Response:
    """For QStash or the dispatcher, with a signature or `WORKER_SECRET`. 200: the job is done, or
    there is nothing to do, or the record failed; 503: something is unavailable, so deliver
    it again."""
    service: Service = request.app.state.service
    settings = service.ev.settings
    body = await read_delivery(request, service)
    try:
        given = DeliveryIn.model_validate(read_json(body, settings))
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False, include_input=False)) from None
    done = await service.run_job(service.ev.dispatcher.deliver, given.job_id, given.token)
    return answer(DeliveredOut, done)


# credentials
async def check_scheduler(request: Request, service: Service) -> None:
    """Check `CRON_SECRET` before a dispatch."""
    secret = configured(service.ev.settings, "cron_secret")
    if not secret:
        if not await _is_open(request, service):
            _refuse("set CRON_SECRET, and send it as Authorization: Bearer or x-cron-secret")
        return
    given = request.headers.get("x-cron-secret", "")
    # always compare both, so that timing does not reveal which was sent
    if not _same(secret, bearer_of(request.headers)) | _same(secret, given):
        _refuse("send CRON_SECRET as Authorization: Bearer or x-cron-secret")


async def read_delivery(request: Request, service: Service) -> bytes:
    """The body of a delivery with a valid QStash signature or `WORKER_SECRET`. If a signature is
    present, only the signature counts."""
    settings = service.ev.settings
    keys = [key for name in _SIGNING_KEYS if (key := configured(settings, name))]
    secret = configured(settings, "worker_secret")
    signature = request.headers.get("upstash-signature")
    if signature is not None:
        url = _own_url(request, settings)
        if url is None:
            _refuse("EVERVEC_PUBLIC_URL is not set, so the signature cannot be checked")
        signed = [_signed(signature, key, url + WORKER_PATH) for key in keys]
        digest = next((found for found in signed if found is not None), None)
        if digest is None or not _same(digest, _digest(await request.body())):
            _refuse("invalid signature for this body, address (EVERVEC_PUBLIC_URL) and time")
    elif secret and "x-worker-secret" in request.headers:
        if not _same(secret, request.headers["x-worker-secret"]):
            _refuse("invalid x-worker-secret: it differs from WORKER_SECRET")
    elif keys or secret or not await _is_open(request, service):
        _refuse(
            "missing credentials: a delivery needs a QStash signature, or WORKER_SECRET as "
            "x-worker-secret"
        )
    return await request.body()


def public_url(request: Request, settings: Settings) -> str:
    """The URL that deliveries are sent to; raises a `Problem` if unknown."""
    url = _own_url(request, settings)
    if url is None:
        raise Problem(503, "the service's public address is unknown: set EVERVEC_PUBLIC_URL")
    return url


def _own_url(request: Request, settings: Settings) -> str | None:
    """`public_url`, else the address that the service listens on."""
    return settings.public_url.rstrip("/") or own_address(request.scope)


async def _is_open(request: Request, service: Service) -> bool:
    """Whether no secret is required."""
    if any(configured(service.ev.settings, name) for name in _SECRETS):
        return False
    if await service.has_keys():
        return False
    return service.ev.settings.open_without_keys or is_local(request.scope)


def _signed(signature: str, key: str, url: str) -> str | None:
    """The body's digest in a valid signature; None if it is invalid."""
    # HMAC itself pads short keys with zeros; jwt would reject QStash's keys for their length
    padded = key.encode().ljust(32, b"\0")
    try:
        claims = jwt.decode(
            signature, padded, algorithms=["HS256"], issuer="Upstash", options={"require": _CLAIMS}
        )
        return str.rstrip(claims["body"], "=") if _same(url, claims["sub"]) else None
    except Exception:  # noqa: BLE001 - any failure means an invalid signature
        return None


def _digest(body: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()


def _same(kept: str, given: str) -> bool:
    return hmac.compare_digest(kept.encode("utf-8", "replace"), given.encode("utf-8", "replace"))


def _refuse(detail: str) -> NoReturn:
    raise Problem(401, detail, headers={"WWW-Authenticate": 'Bearer realm="evervec dispatch"'})
