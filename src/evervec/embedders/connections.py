"""Keep-alive connections to one server, over the standard library's HTTP client.

An answer has some hundred kilobytes of vectors, and several calls run at once. Reading them shares
the interpreter with the rest of the worker, so it must do as little as possible.
"""

from __future__ import annotations

import http.client
import selectors
import time
from base64 import b64encode
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

_CONNECT_SECONDS = 5.0
_MOST_KEPT = 64
_KEPT_SECONDS = 5.0
"""After a longer pause, a proxy or firewall may have dropped the connection."""
_PART = 1 << 18
_MOST_BYTES = 1 << 28
_IN_PATHS = "/%?:@!$&'()*+,;=~"


class CannotConnect(Exception):
    """The server cannot be reached."""


class BrokenOff(Exception):
    """The connection ended, or the answer is not HTTP."""


class TooLong(Exception):
    """The answer is longer than any valid one."""


class Response(NamedTuple):
    """A server's answer; header names are in lower case."""

    status: int
    headers: dict[str, str]
    content: bytes


class Connections:
    """A pool of connections to the server of a URL: as many as there are concurrent calls, reused.

    Proxies are read from the environment. A user and password in the URL are sent as Basic
    authentication. Raises ValueError if the URL or the proxy cannot be used.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._place = parts = _parsed(url)
        self._headers = {**headers, **_basic("Authorization", parts)}
        self._target = quote(
            f"{parts.path}?{parts.query}" if parts.query else parts.path, _IN_PATHS
        )
        self._proxy = _proxy_for(parts)
        if self._proxy and parts.scheme == "http":
            self._target = f"http://{parts.netloc.rpartition('@')[2]}{self._target}"
            self._headers |= _basic("Proxy-Authorization", self._proxy)
        self._context = None
        if parts.scheme == "https":
            import httpx

            self._context = httpx.create_ssl_context()
        self._kept: list[tuple[http.client.HTTPConnection, float]] = []
        self._closed = False

    def exchange(self, method: str, path: str, body: bytes | None, seconds: float) -> Response:
        """Send one request and read its answer, within so many seconds. Raises `CannotConnect`,
        `BrokenOff`, `TooLong` or TimeoutError."""
        if self._closed:
            raise RuntimeError("the connections are closed")
        ends = time.monotonic() + seconds
        conn = self._one_kept() or self._new(min(seconds, _CONNECT_SECONDS))
        headers = {**self._headers, "Content-Type": "application/json"} if body else self._headers
        sock = conn.sock
        try:
            sock.settimeout(max(ends - time.monotonic(), 0.001))
            conn.request(method, self._target + path, body, headers)
            with conn.getresponse() as response:
                content = _read(response, sock, ends)
        except TimeoutError:
            conn.close()
            raise
        except (http.client.HTTPException, OSError) as error:
            conn.close()
            raise BrokenOff(_words(error)) from None
        except BaseException:
            conn.close()
            raise
        if response.will_close:
            conn.close()
        else:
            self._keep(conn)
        named = {name.lower(): value for name, value in response.headers.items()}
        return Response(response.status, named, content)

    def _one_kept(self) -> http.client.HTTPConnection | None:
        """The most recently used connection that the server has not closed."""
        while self._kept:
            try:
                conn, since = self._kept.pop()
            except IndexError:  # another call took it first
                break
            if time.monotonic() - since < _KEPT_SECONDS and not _readable(conn.sock):
                return conn
            conn.close()
        return None

    def _keep(self, conn: http.client.HTTPConnection) -> None:
        if self._closed or len(self._kept) >= _MOST_KEPT:
            conn.close()
        else:
            self._kept.append((conn, time.monotonic()))

    def _new(self, seconds: float) -> http.client.HTTPConnection:
        at = self._proxy or self._place
        host, port = at.hostname or "", at.port
        if self._context is not None:
            conn: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=seconds, context=self._context
            )
            if self._proxy:
                name = self._place.hostname or ""
                passes = _basic("Proxy-Authorization", self._proxy)
                conn.set_tunnel(name, self._place.port or 443, passes)
        else:
            conn = http.client.HTTPConnection(host, port or 80, timeout=seconds)
        try:
            conn.connect()
        except (http.client.HTTPException, OSError, UnicodeError) as error:
            conn.close()
            by = f", through the proxy {host}" if self._proxy else ""
            raise CannotConnect(f"{_words(error)}{by}") from None
        return conn

    def close(self) -> None:
        """Close idle connections; those in use are closed when their calls end."""
        self._closed = True
        while self._kept:
            self._kept.pop()[0].close()


def _read(response: http.client.HTTPResponse, sock: object, ends: float) -> bytes:
    parts, size = [], 0
    while part := response.read1(_PART):
        parts.append(part)
        size += len(part)
        left = ends - time.monotonic()
        if left <= 0:  # the server sends too slowly
            raise TimeoutError
        if size > _MOST_BYTES:
            raise TooLong(f"more than {_MOST_BYTES} bytes")
        sock.settimeout(left)  # type: ignore[attr-defined]
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(parts)


def _parsed(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the URL must begin with http:// or https:// and a host name")
    if not url.isprintable() or " " in parts.netloc:
        raise ValueError("the URL has invalid characters")
    _ = parts.port  # raises ValueError if it is not a number
    return parts


def _proxy_for(place: SplitResult) -> SplitResult | None:
    proxies = getproxies()
    found = proxies.get(place.scheme) or proxies.get("all")
    if not found or proxy_bypass(place.hostname or ""):
        return None
    proxy = urlsplit(found if "://" in found else f"http://{found}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise ValueError("the proxy in the environment must be http://host:port")
    return proxy


def _basic(name: str, parts: SplitResult) -> dict[str, str]:
    """A header with the user and password of a URL, if it has them."""
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {name: "Basic " + b64encode(pair.encode()).decode()}


def _readable(sock: object) -> bool:
    """Whether an idle connection has input, which means that it was closed."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)  # type: ignore[arg-type]
        return bool(selector.select(0))


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
