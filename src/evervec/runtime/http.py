"""Keep-alive connections to one server: the HTTP client of everything in evervec.

It is urllib3. Calls per second to a local provider that answers with 350 kB, from 1, 8 and 32
threads, in one run on two shared cores: a pool of http.client written by hand 203, 352 and 559;
urllib3 199, 354 and 517; httpx 112, 326 and 365. Processor time of a call, which the rest of the
worker lacks: 0.4, 0.6 and 1.0 to 1.6 ms.
"""

from __future__ import annotations

import json
import logging
import os
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi
import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError
from urllib3.exceptions import TimeoutError as Urllib3Timeout

CONNECT_SECONDS = 5.0
_SEND_SECONDS = 60.0
_MOST_KEPT = 64
KEPT_SECONDS = 5.0
"""After a longer pause, a proxy or firewall may have dropped the connection."""
_PART = 1 << 18
MOST_BYTES = 1 << 28


class HttpFailure(Exception):
    """A request got no answer."""


class ConnectionsClosed(RuntimeError):
    """The connections were closed by their owner."""


class CannotConnect(HttpFailure):
    """The server cannot be reached."""


class ConnectionLost(HttpFailure):
    """The connection ended, or the answer is not HTTP."""


class TooLong(HttpFailure):
    """The answer is longer than any valid one."""


class Response(NamedTuple):
    """A server's answer; the names of headers are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)


class Connections:
    """A pool of connections to the server of a URL: as many as there are concurrent calls, reused.

    Proxies are read from the environment. A user and password in the URL are sent as Basic
    authentication. Redirects are not followed. Raises ValueError if the URL or the proxy cannot be
    used.
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], connect_seconds: float = CONNECT_SECONDS
    ) -> None:
        parts, self._url, self._headers = server_at(url, headers)
        self._connect_seconds = connect_seconds
        proxy = proxy_for(parts)
        options: dict[str, Any] = {"maxsize": _MOST_KEPT}
        if (tls := tls_of(parts)) is not None:
            options["ssl_context"] = tls
        if proxy is None:
            self._pools = urllib3.PoolManager(**options)
        else:
            user = basic_auth("Proxy-Authorization", proxy)
            self._pools = urllib3.ProxyManager(proxy.geturl(), proxy_headers=user, **options)
        self._pools.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}
        self._closed = False

    def exchange(
        self,
        method: str,
        path: str,
        body: bytes | None,
        seconds: float,
        headers: Mapping[str, str] | None = None,
        *,
        streamed: bool = False,
    ) -> Response:
        """Send one request and read its answer, within so many seconds; if it is `streamed`, they
        limit each silence of the server instead. Raises `CannotConnect`, `ConnectionLost`, `TooLong` or
        TimeoutError."""
        if self._closed:
            raise ConnectionsClosed("the connections are closed")
        connect = min(seconds, self._connect_seconds)
        whole = None if streamed else seconds
        ends = float("inf") if streamed else time.monotonic() + seconds
        sent = {**self._headers, **(headers or {})}
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        _thread.requesting = True
        try:
            response = self._pools.urlopen(
                method,
                self._url + path,
                body=body,
                headers=sent,
                timeout=urllib3.Timeout(total=whole, connect=connect, read=seconds),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            try:
                content = _read(response, ends)
            except BaseException:
                response.close()
                raise
        except Urllib3Timeout:
            raise TimeoutError from None
        except (HTTPError, OSError) as error:
            cause = _cause(error)
            raise (
                cause if isinstance(cause, TimeoutError) else ConnectionLost(words_of(cause))
            ) from None
        finally:
            _thread.requesting = False
        return Response(response.status, response.headers, content)

    def close(self) -> None:
        """Close idle connections; those in use are closed when their calls end."""
        self._closed = True
        self._pools.clear()


class _Kept(HTTPConnection):
    """A connection that is used again only after a short pause, and that tells a failure to connect
    from later ones."""

    _used = 0.0

    @property
    def is_connected(self) -> bool:
        return time.monotonic() - self._used < KEPT_SECONDS and super().is_connected

    def connect(self) -> None:
        try:
            super().connect()
        except (HTTPError, HTTPException, OSError) as error:
            cause = _cause(error)
            by = f", through the proxy {self.proxy.host}" if self.proxy else ""
            raise CannotConnect(f"{words_of(cause)}{by}") from cause

    def request(self, *args: Any, **options: Any) -> None:
        if self.sock is None:
            self.connect()
        self.sock.settimeout(_SEND_SECONDS)  # instead of what the last call had left to connect
        super().request(*args, **options)

    def getresponse(self) -> Any:
        self._used = time.monotonic()
        return super().getresponse()


class _KeptTls(_Kept, HTTPSConnection):
    pass


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Kept


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _KeptTls


_thread = threading.local()


class _NotOurs(logging.Filter):
    """urllib3 logs the path of each request, which is a secret of some webhooks. Requests that the
    program makes without evervec are logged as before."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(_thread, "requesting", False)


logging.getLogger("urllib3.connectionpool").addFilter(_NotOurs())


def _read(response: urllib3.BaseHTTPResponse, ends: float) -> bytes:
    parts, size = [], 0
    while part := response.read1(_PART):
        parts.append(part)
        size += len(part)
        left = ends - time.monotonic()
        if left <= 0:  # the server sends too slowly
            raise TimeoutError
        if size > MOST_BYTES:
            raise TooLong(f"more than {MOST_BYTES} bytes")
        sock = getattr(response.connection, "sock", None)
        if sock is not None and left < float("inf"):
            sock.settimeout(left)
    return b"".join(parts)


def parse_url(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the URL must begin with http:// or https:// and a host name")
    if not url.isprintable() or " " in parts.netloc:
        raise ValueError("the URL has invalid characters")
    _ = parts.port  # raises ValueError if it is not a number
    return parts


def proxy_for(place: SplitResult) -> SplitResult | None:
    proxies = getproxies()
    found = proxies.get(place.scheme) or proxies.get("all")
    if not found or proxy_bypass(place.hostname or ""):
        return None
    proxy = urlsplit(found if "://" in found else f"http://{found}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise ValueError("the proxy in the environment must be http://host:port")
    return proxy


def server_at(url: str, headers: Mapping[str, str]) -> tuple[SplitResult, str, dict[str, str]]:
    """The parts of a URL, the URL without user and password, and the headers of every request."""
    parts = parse_url(url)
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    auth = basic_auth("Authorization", parts)
    return parts, bare, {"User-Agent": "evervec", **headers, **auth}


def basic_auth(name: str, parts: SplitResult) -> dict[str, str]:
    """A header with the user and password of a URL, if it has them."""
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {name: "Basic " + b64encode(pair.encode()).decode()}


def tls_of(parts: SplitResult) -> ssl.SSLContext | None:
    """The TLS settings for a URL; None if it has none, so that certificates need not be loaded."""
    if parts.scheme != "https":
        return None
    return _certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _certificates(file: str | None, folder: str | None) -> ssl.SSLContext:
    """The certificates of the environment's file or folder, otherwise Mozilla's. To load them takes
    long, so it is done once."""
    if file or folder:
        return ssl.create_default_context(cafile=file, capath=folder)
    return ssl.create_default_context(cafile=certifi.where())


def _cause(error: BaseException) -> BaseException:
    """The error below those of urllib3, whose texts contain the URL."""
    while isinstance(error, HTTPError):
        below = error.__cause__ or next((a for a in error.args if isinstance(a, Exception)), None)
        if below is None:
            break
        error = below
    return error


def words_of(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
