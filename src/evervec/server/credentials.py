"""Who may start a dispatch, and who may deliver a job.

A delivery shows a signature of QStash, else the worker's secret; a scheduler shows its own
secret. As long as nothing of the kind is set, whoever is on this machine may come in. What
was shown is compared in constant time, and never logged.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import NoReturn
from urllib.parse import urlsplit

import jwt
from starlette.requests import Request

from evervec.courier import WORKER_PATH, configured
from evervec.server.access import is_loopback
from evervec.server.problems import Problem
from evervec.settings import Settings

_CLAIMS = ["iss", "sub", "exp", "nbf", "body"]
_ON_THE_WAY = ("forwarded", "x-forwarded-for", "x-real-ip")


def check_scheduler(request: Request, settings: Settings) -> None:
    """Let a round begin for whoever has `CRON_SECRET`."""
    secret = configured(settings, "cron_secret")
    if not secret:
        if not _is_here(request):
            _refuse("set CRON_SECRET, and send it as Authorization: Bearer or x-cron-secret")
        return
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    shown = bearer.strip() if scheme.lower() == "bearer" else ""
    given = request.headers.get("x-cron-secret", "")
    # both are compared, whichever was sent
    if not _same(secret, shown) | _same(secret, given):
        _refuse("send CRON_SECRET as Authorization: Bearer or x-cron-secret")


def check_delivery(request: Request, body: bytes, settings: Settings) -> None:
    """Let in a delivery that QStash signed, or that shows `WORKER_SECRET`. Whoever shows a
    signature is judged by it alone."""
    names = ("qstash_current_signing_key", "qstash_next_signing_key")
    keys = [key for name in names if (key := configured(settings, name))]
    secret = configured(settings, "worker_secret")
    signature = request.headers.get("upstash-signature")
    if signature is not None:
        url = _own_url(request, settings)
        if url is None:
            _refuse("EVERVEC_PUBLIC_URL is not set, so no signature can be checked")
        if not any(_is_signed(signature, key, url + WORKER_PATH, body) for key in keys):
            _refuse("the signature is not good for this body, address and time")
    elif secret and "x-worker-secret" in request.headers:
        if not _same(secret, request.headers["x-worker-secret"]):
            _refuse("x-worker-secret is not WORKER_SECRET")
    elif keys or secret or not _is_here(request):
        _refuse("a delivery is signed by QStash, or shows WORKER_SECRET as x-worker-secret")


def public_url(request: Request, settings: Settings) -> str:
    """Where deliveries are sent to; a `Problem` if that is not known."""
    url = _own_url(request, settings)
    if url is None:
        raise Problem(503, "set EVERVEC_PUBLIC_URL to the address that others reach this at")
    return url


def _own_url(request: Request, settings: Settings) -> str | None:
    """As it is set, else the request's own address on this machine."""
    if settings.public_url:
        return settings.public_url.rstrip("/")
    host = request.headers.get("host", "")
    return f"{request.url.scheme}://{host}" if is_loopback(_name(host)) else None


def _is_signed(signature: str, key: str, url: str, body: bytes) -> bool:
    # zeros behind a short key are what HMAC adds itself; the length of QStash's is not our choice
    padded = key.encode().ljust(32, b"\0")
    try:
        claims = jwt.decode(
            signature, padded, algorithms=["HS256"], issuer="Upstash", options={"require": _CLAIMS}
        )
        digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
        return _same(url, claims["sub"]) and _same(digest, claims["body"].rstrip("="))
    except Exception:  # noqa: BLE001 - whatever a forger sends, the answer is no
        return False


def _same(kept: str, given: str) -> bool:
    return hmac.compare_digest(kept.encode("utf-8", "replace"), given.encode("utf-8", "replace"))


def _is_here(request: Request) -> bool:
    """Whether a request comes from this machine and no further, as far as can be seen."""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    names = [request.client.host if request.client else "", _name(host)]
    if origin is not None:
        names.append(urlsplit(origin).hostname or "")
    passed_on = any(name in request.headers for name in _ON_THE_WAY)
    return not passed_on and all(is_loopback(name) for name in names)


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _refuse(detail: str) -> NoReturn:
    raise Problem(401, detail, headers={"WWW-Authenticate": 'Bearer realm="evervec dispatch"'})
