"""HTTP/1.1 on a loopback port, as well or as badly as it is told to speak it."""

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.client import responses
from http.server import BaseHTTPRequestHandler
from typing import Any


class Connection:
    """A client's connection, which the server may drop from another thread."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.sock = sock
        self.number = number
        self.brought = 0
        self.dropped = False
        self._closed = False
        self._lock = threading.Lock()

    def drop(self) -> None:
        """End it for both sides; whoever waits on it wakes up."""
        with self._lock:
            self.dropped = True
            if not self._closed:
                with suppress(OSError):
                    self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self.sock.close()


class Exchange(BaseHTTPRequestHandler):
    """One connection's requests, one after the other, and the ways to answer them.

    All that takes time here ends with an OSError when the client leaves or is dropped.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, connection: Connection, answer: Callable[["Exchange"], None]) -> None:
        self.link = connection
        self._answer = answer
        none: Any = None
        super().__init__(connection.sock, none, none)  # all of it happens in there

    def do_GET(self) -> None:
        self._answer(self)

    def do_POST(self) -> None:
        self._answer(self)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def body(self) -> bytes:
        length = int(self.headers.get("content-length", 0))
        received = self.rfile.read(length)
        if len(received) < length:
            raise ConnectionAbortedError("the client left in the middle of its request")
        return received

    def check(self) -> None:
        """See whether the client is still there."""
        with suppress(BlockingIOError):
            if not self.link.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                raise ConnectionAbortedError("the client left")

    def pause(self, seconds: float) -> None:
        """Take as long as the provider that this stands for: its latency, its drips."""
        if seconds <= 0:
            return
        end = time.monotonic() + seconds
        self.link.sock.settimeout(seconds)
        try:
            if not self.link.sock.recv(1, socket.MSG_PEEK):
                raise ConnectionAbortedError("the client left")
            time.sleep(max(0.0, end - time.monotonic()))  # its next request is there already
        except TimeoutError:
            return
        finally:
            self.link.sock.settimeout(None)

    def hang(self) -> None:
        """Never come back, but by the error."""
        while self.link.sock.recv(65536):
            pass
        raise ConnectionAbortedError("the client left")

    def send(self, answer: "Answer", drip_seconds: float = 0.0) -> None:
        """Write all of it, or the first bytes and then no more."""
        reason = responses.get(answer.status, "Unknown")
        head = {
            "Date": formatdate(usegmt=True),
            "Content-Type": answer.content_type,
            "Content-Length": str(len(answer.body)),
            **answer.headers,
        }
        lines = [f"HTTP/1.1 {answer.status} {reason}", *(f"{k}: {v}" for k, v in head.items())]
        written = ("\r\n".join(lines) + "\r\n\r\n").encode()
        body = answer.body if answer.sent is None else answer.body[: answer.sent]
        if drip_seconds:
            self.wfile.write(written)
            for at in range(len(body)):
                self.wfile.write(body[at : at + 1])
                self.pause(drip_seconds)
        else:
            self.wfile.write(written + body)
        if answer.sent is not None:
            self.close_connection = True


@dataclass(frozen=True)
class Answer:
    """What goes back to the client."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    sent: int | None = None
    """end the connection after so many bytes of the body"""


def as_json(status: int, content: object, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, json.dumps(content).encode(), headers=headers or {})


class Http:
    """HTTP/1.1 on a loopback port, with a thread for each connection; it can go and come back."""

    def __init__(self, answer: Callable[[Exchange], None], port: int = 0) -> None:
        self._answer = answer
        # Bound, but never listening: it keeps the port from all others while nobody listens.
        self._keeper = self._bound(port)
        self.port: int = self._keeper.getsockname()[1]
        self.accepted = 0
        self._listener: socket.socket | None = None
        self._accepting: threading.Thread | None = None
        self._connections: dict[Connection, threading.Thread] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @staticmethod
    def _bound(port: int) -> socket.socket:
        sock = socket.socket()
        # what lets two sockets of ours have one port, if not two that listen
        shared = socket.SO_REUSEADDR if sys.platform == "linux" else socket.SO_REUSEPORT
        sock.setsockopt(socket.SOL_SOCKET, shared, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            sock.close()
            raise
        return sock

    def listen(self) -> None:
        self._listener = self._bound(self.port)
        self._listener.listen(1024)
        self._accepting = threading.Thread(
            target=self._accept, args=[self._listener], name=f"provider-{self.port}", daemon=True
        )
        self._accepting.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            self.accepted += 1
            connection = Connection(sock, self.accepted)
            thread = threading.Thread(
                target=self._talk, args=[connection], name=f"provider-{self.port}-connection",
                daemon=True,
            )  # fmt: skip
            ended = [known for known, thread in self._connections.items() if not thread.is_alive()]
            for known in ended:
                del self._connections[known]
            thread.start()
            self._connections[connection] = thread

    def _talk(self, connection: Connection) -> None:
        try:
            Exchange(connection, self._answer)
        except OSError:
            pass  # the client left, or was dropped
        finally:
            connection.close()

    def hang_up(self) -> None:
        """Refuse new connections, and drop those that are there."""
        if self._listener is None or self._accepting is None:
            return
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`; elsewhere `close` does
        self._accepting.join(0.5)
        self._listener.close()
        self._accepting.join()
        self._listener = self._accepting = None
        for connection in self._connections:
            connection.drop()

    def join(self) -> None:
        """Wait until the dropped connections' threads are gone."""
        for thread in self._connections.values():
            thread.join()
        self._connections.clear()

    def close(self) -> None:
        self.hang_up()
        self.join()
        self._keeper.close()
