"""Uvicorn's HTTP/1.1 with limits on headers, bodies, and the time that a client may take.

A connection has a time budget (`_seconds_left`) that shrinks only while the service waits for the
client to send or to read. Transferred bytes refill it, at the minimum rate that a client must keep;
for a large response the rate is higher, so that it is read within `server_most_seconds`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from evervec.server.connections import Connections
from evervec.server.delays import SECONDS
from evervec.server.problems import MEDIA_TYPE, Problem
from evervec.server.requests import SECURITY_HEADERS, new_request_id
from evervec.server.transport import JoiningTransport
from evervec.settings import Settings

_MOST_PIPELINED = 16
_DISCARD_SECONDS = 5.0
"""how long data is still read and discarded after an error response, so that the client gets it"""
_FEW_CHUNKS, _LEAST_CHUNK = 4096, 16
"""after so many chunks of a body, they must have at least this average size: each costs time"""

_log = logging.getLogger("evervec.server.protocol")
_log.setLevel(logging.ERROR)  # uvicorn warns of every malformed request: attackers could fill disks


class Refused(Exception):
    """Stops parsing a request; the connection keeps the reason."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, connections: Connections, settings: Settings, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self.logger = _log
        self._connections = connections
        self._unread = connections.unread
        self._settings = settings
        self._most_head = int(settings.server_header_kb * 1024)
        self._most_body = int(settings.server_body_mb * 1e6)
        self._seconds_left = settings.server_header_seconds
        self._unparsed = 0
        """bytes since the last complete header section or chunk of a body"""
        self._complete = True
        """whether the last request was received completely"""
        self._chunks = self._bytes = 0
        """chunks and bytes of the current body"""
        self._unsent = 0
        self._largest = 0
        """bytes of the response that the client has to read"""
        self._waits = False
        """whether further requests wait until the client has read the response"""
        self._delayed: asyncio.TimerHandle | None = None
        """when the connection is refused"""
        self._refusal: Problem | None = None
        self._discarding = False

    # the connection
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = cast("asyncio.Transport", JoiningTransport(transport, self.loop))
        if self._is_gone():  # nobody would be counted for its request
            transport.abort()
            return
        refusal = self._connections.admit(self, self.client[0] if self.client else None)
        if refusal is None:
            return
        if self._connections.delays.begin(self.client[0] if self.client else ""):
            self._discarding = True
            self.transport.pause_reading()
            self._delayed = self.loop.call_later(SECONDS, self._turn_away, refusal)
        else:
            self._turn_away(refusal)

    def _turn_away(self, refusal: Problem) -> None:
        """Answer a connection that is not admitted."""
        self._end_delay()
        if not self.transport.is_closing():
            self._answer(refusal)
            self.transport.close()

    def _end_delay(self) -> None:
        if self._delayed is not None:
            self._delayed.cancel()
            self._delayed = None
            self._connections.delays.end()

    def _is_gone(self) -> bool:
        """Whether the client of a TCP connection has reset it already: it has no address then."""
        return self.client is None and self.server is not None and self.server[1] is not None

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_delay()
        self._connections.remove(self)
        self._unread.release(self)
        super().connection_lost(exc)

    def evict(self) -> None:
        self.transport.abort()

    def unsent(self) -> int:
        return self.transport.get_write_buffer_size()

    def data_received(self, data: bytes) -> None:
        self._unparsed += len(data)
        if self._discarding:
            if self._unparsed > self._most_body:
                self.transport.abort()
            return
        super().data_received(data)
        if self._unparsed > self._most_head and not self._discarding:
            self._refuse(self._head_too_large())

    def pause_writing(self) -> None:
        super().pause_writing()
        size = self._largest = self.transport.get_write_buffer_size()
        self._unread.hold(self, self._reader(), size)

    def resume_writing(self) -> None:
        self._unsent = self._largest = 0  # the client has read
        self._refill(float("inf"))
        self._unread.release(self)
        super().resume_writing()
        if self._waits:
            self._waits = False
            if not self.transport.is_closing():
                self._go_on()

    def _reader(self) -> str:
        """The tenant that the response is counted for; without a key, the client."""
        scope: Any = self.cycle.scope if self._has_cycle() else {}
        caller = scope.get("caller")
        return caller.tenant if caller else f"client {self.client[0] if self.client else ''}"

    # one request
    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._complete = False
        self._seconds_left = self._settings.server_header_seconds

    def on_headers_complete(self) -> None:
        self._check_head()
        upgrades = self.parser.should_upgrade()
        if upgrades:
            self._check_upgrade()
        super().on_headers_complete()
        if upgrades:
            self.cycle.keep_alive = False
        self.headers = []  # trailers are not the request's headers
        self._unparsed = self._chunks = self._bytes = 0
        self._seconds_left = self._settings.server_body_seconds
        self._connections.busy(self)

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        size = len(body)
        self._unparsed = 0
        self._chunks += 1
        self._bytes += size
        self._refill(size / self._settings.server_body_rate)
        if self._chunks > _FEW_CHUNKS and self._bytes < _LEAST_CHUNK * self._chunks:
            self._refusal = Problem(
                400, f"the body's chunks have less than {_LEAST_CHUNK} bytes: send larger chunks"
            )
            raise Refused

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._unparsed = 0
        self._complete = True

    def on_response_complete(self) -> None:
        # As in uvicorn, but without a timer: idle connections are swept, and a timer costs more than
        # everything else here.
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            if self.flow.write_paused:  # the next response would need memory too
                self._waits = True
                self.flow.pause_reading()
            else:
                self._go_on()
        if self.cycle.response_complete:
            self._connections.idle(self)
            if self._complete:
                self._seconds_left = self._settings.server_idle_seconds

    def _go_on(self) -> None:
        """Read and handle the next request."""
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn when a request is malformed, or was rejected while it was parsed."""
        self._refuse(self._refusal or Problem(400, "malformed HTTP/1.1 request"))

    def _check_head(self) -> None:
        most = self._settings.server_headers
        few = len(self.headers) <= most and len(self.pipeline) < _MOST_PIPELINED
        if few and self._unparsed <= self._most_head:  # the header section is a part of these bytes
            return
        lines = sum(len(name) + len(value) + 4 for name, value in self.headers)
        if len(self.url) > self._most_head:
            self._refusal = Problem(
                414, f"the URL is longer than {self._most_head:,} bytes (server_header_kb)"
            )
        elif len(self.url) + lines > self._most_head:
            self._refusal = self._head_too_large()
        elif len(self.headers) > most:
            self._refusal = Problem(431, f"more than {most} headers (server_headers): send fewer")
        elif len(self.pipeline) >= _MOST_PIPELINED:
            self._refusal = Problem(400, "too many pipelined requests: wait for the responses")
        if self._refusal:
            raise Refused

    def _check_upgrade(self) -> None:
        """Refuse a body after `Upgrade` or CONNECT: the parser would take it for the next request,
        which a proxy before the service has not seen."""
        fields = dict(self.headers)
        if b"transfer-encoding" in fields or fields.get(b"content-length", b"0") != b"0":
            self._refusal = Problem(
                400, "a request with a body cannot change the protocol: send it without Upgrade"
            )
            raise Refused

    def _head_too_large(self) -> Problem:
        return Problem(
            431,
            f"request line and headers are larger than {self._most_head:,} bytes "
            "(server_header_kb): send less",
        )

    def _has_request(self) -> bool:
        """Whether a request is in progress."""
        return self._has_cycle() and not self.cycle.response_complete

    def _has_cycle(self) -> bool:
        """Whether there was a request: uvicorn has no cycle before the first one."""
        return self.cycle is not None

    # time
    def check_time(self, seconds: float) -> None:
        """Close the connection if its client takes too long."""
        before, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        if self._largest:
            self._unread.shrink(self, self._unsent)
        rate = max(
            self._settings.server_body_rate, self._largest / self._settings.server_most_seconds
        )
        self._refill(max(0, before - self._unsent) / rate)
        working = self._complete and self._has_request()
        ours = not self._discarding and (working or self.flow.read_paused)
        if self._unsent or not ours:  # the service waits for the client
            self._seconds_left -= seconds
            if self._seconds_left <= 0:
                self._time_out()

    def _refill(self, seconds: float) -> None:
        if seconds:
            most = self._settings.server_body_seconds
            self._seconds_left = max(self._seconds_left, min(most, self._seconds_left + seconds))

    def _time_out(self) -> None:
        if self._unsent or self._discarding:
            self.transport.abort()
        elif self._complete:
            self.transport.close()
        else:
            rate, body = self._settings.server_body_rate, self._settings.server_body_seconds
            self._refuse(
                Problem(
                    408,
                    "the request arrived too slowly: send its headers within "
                    f"{self._settings.server_header_seconds:g} s (server_header_seconds), its body "
                    f"without pauses of {body:g} s (server_body_seconds) and with at least {rate} "
                    "bytes per second (server_body_rate)",
                )
            )

    # refusals
    def _refuse(self, problem: Problem) -> None:
        """Send an error response and close the connection. Further data of the client is read for
        a moment: closing at once would reset the connection, and the response would be lost."""
        if self.transport.is_closing() or self._discarding:
            return
        if self._has_request():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started or self.pipeline:
                self.transport.close()  # in the middle of another response
                return
        self._answer(problem)
        self._half_close()

    def _half_close(self) -> None:
        self._discarding, self._unparsed, self._seconds_left = True, 0, _DISCARD_SECONDS
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _answer(self, problem: Problem) -> None:
        body = problem.encoded(new_request_id())
        headers = [
            *self.server_state.default_headers,
            *SECURITY_HEADERS,
            (b"content-type", MEDIA_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            *(
                (name.lower().encode(), value.encode())
                for name, value in (problem.headers or {}).items()
            ),
        ]
        lines = b"".join(b"%b: %b\r\n" % pair for pair in headers)
        self.transport.write(STATUS_LINE[problem.status_code] + lines + b"\r\n" + body)
