"""Kept connections to a provider: what goes over the wire, and what is done with what comes."""

import logging
import socket
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import urllib3

from evervec.runtime.http import CannotConnect, ConnectionLost, Connections, TooLong

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Name: Value\r\n\r\nhi"


class Wire:
    """A server that answers each request with the next of its answers, and notes what came.
    An empty answer, like the end of them, closes the connection."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.heads: list[list[str]] = []
        self.accepted = 0
        self.parts, self.pause = 1, 0.0
        """an answer is this many of `answers`, with a pause before each but the first"""
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                conn, _ = self._listening.accept()
            except OSError:
                return
            self.accepted += 1
            self._open.append(conn)
            threading.Thread(target=self._serve, args=(conn,), daemon=True).start()

    def _serve(self, conn: socket.socket) -> None:
        with conn, conn.makefile("rb") as file:
            while line := file.readline():
                head = [line.decode().strip()]
                while (line := file.readline()) not in (b"\r\n", b""):
                    head.append(line.decode().strip())
                length = [h for h in head if h.lower().startswith("content-length:")]
                file.read(int(length[0].split(":")[1]) if length else 0)
                self.heads.append(head)
                answer = self.answers.pop(0) if self.answers else b""
                if not answer:
                    return
                conn.sendall(answer)
                for _ in range(self.parts - 1):
                    time.sleep(self.pause)
                    conn.sendall(self.answers.pop(0))
                if b"Connection: close" in answer:
                    return

    def hang_up(self) -> None:
        for conn in self._open:
            conn.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    with closing(Wire()) as wire:
        yield wire


@pytest.fixture
def to(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Connections]]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    made = []

    def make(url: str = "", **headers: str) -> Connections:
        made.append(Connections(url or f"http://127.0.0.1:{wire.port}/v1", headers))
        return made[-1]

    yield make
    for connections in made:
        connections.close()


def test_one_connection_serves_one_call_after_the_other(
    wire: Wire, to: Callable[..., Connections]
) -> None:
    wire.answers = [OK, OK]
    connections = to(Authorization="Bearer key")
    assert connections.exchange("POST", "/embeddings", b"{}", 5) == (
        200, {"content-length": "2", "x-name": "Value"}, b"hi"
    )  # fmt: skip
    connections.exchange("GET", "/models", None, 5)
    assert [head[0] for head in wire.heads] == [
        "POST /v1/embeddings HTTP/1.1", "GET /v1/models HTTP/1.1"
    ]  # fmt: skip
    assert "Authorization: Bearer key" in wire.heads[0]
    assert "Content-Type: application/json" in wire.heads[0]
    assert wire.accepted == 1


def test_what_the_other_side_has_closed_is_not_used_again(
    wire: Wire, to: Callable[..., Connections]
) -> None:
    closes = OK.replace(b"X-Name: Value", b"Connection: close")
    wire.answers = [OK, closes, OK]
    connections = to()
    connections.exchange("GET", "", None, 5)
    wire.hang_up()
    connections.exchange("GET", "", None, 5)
    connections.exchange("GET", "", None, 5)
    assert wire.accepted == 3


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "Remote end closed"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "SSH"),
        (OK.replace(b"2\r\n", b"9\r\n", 1).replace(b"X-Name: Value", b"Connection: close"), "7 more"),
    ],
    ids=["nothing", "another protocol", "less than it said"],
)  # fmt: skip
def test_an_answer_that_is_none_is_broken_off(
    wire: Wire, to: Callable[..., Connections], answer: bytes, words: str
) -> None:
    wire.answers = [answer]
    with pytest.raises(ConnectionLost, match=words):
        to().exchange("GET", "", None, 5)


def test_an_answer_in_pieces_is_put_together(wire: Wire, to: Callable[..., Connections]) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    wire.answers = [head + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", OK]
    connections = to()
    assert connections.exchange("GET", "", None, 5).content == b"abcde"
    assert connections.exchange("GET", "", None, 5).content == b"hi"
    assert wire.accepted == 1


def test_an_answer_without_end_is_left(
    wire: Wire, to: Callable[..., Connections], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evervec.runtime.http.MOST_BYTES", 1)
    wire.answers = [OK]
    with pytest.raises(TooLong, match="more than 1 bytes"):
        to().exchange("GET", "", None, 5)


def test_one_who_never_answers_is_left_in_time(wire: Wire, to: Callable[..., Connections]) -> None:
    wire.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh"]
    with pytest.raises(TimeoutError):
        to().exchange("GET", "", None, 0.1)


def test_nobody_there_and_no_such_name_are_told(to: Callable[..., Connections]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}", "http://no-such-host.invalid", "http://a..b"):
        with pytest.raises(CannotConnect):
            to(url).exchange("GET", "", None, 5)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "must begin with http"),
        ("127.0.0.1:80", "must begin with http"),
        ("ftp://host", "must begin with http"),
        ("http://", "must begin with http"),
        ("http://host:port", "Port could not be cast"),
        ("http://a b/", "invalid characters"),
        ("http://[::1", "Invalid IPv6"),
    ],
)
def test_what_is_no_url_says_so(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Connections(url, {})


def test_a_name_and_password_in_the_url_are_sent(
    wire: Wire, to: Callable[..., Connections]
) -> None:
    wire.answers = [OK]
    to(f"http://ann:p%40ss@127.0.0.1:{wire.port}/a path").exchange("GET", "/x", None, 5)
    (head,) = wire.heads
    assert head[0] == "GET /a%20path/x HTTP/1.1"
    assert f"Authorization: Basic {b64encode(b'ann:p@ss').decode()}" in head


def test_the_proxy_of_the_environment_is_asked_and_given_its_password(
    wire: Wire, to: Callable[..., Connections], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://bob:secret@127.0.0.1:{wire.port}")
    wire.answers = [OK]
    to("http://ann:key@provider.example:8080/v1").exchange("GET", "/x", None, 5)
    (head,) = wire.heads
    assert head[0] == "GET http://provider.example:8080/v1/x HTTP/1.1"
    assert "Host: provider.example:8080" in head
    assert f"Proxy-Authorization: Basic {b64encode(b'bob:secret').decode()}" in head


def test_through_a_proxy_the_provider_is_spoken_to_in_secret(
    wire: Wire, to: Callable[..., Connections], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", f"bob:secret@127.0.0.1:{wire.port}")
    wire.answers = [b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"]
    with pytest.raises(CannotConnect, match=r"407.*through the proxy 127\.0\.0\.1"):
        to("https://provider.example/v1", Authorization="Bearer key").exchange("GET", "/x", None, 5)
    (head,) = wire.heads
    assert head[0].startswith("CONNECT provider.example:443 HTTP/1.")
    assert f"Proxy-Authorization: Basic {b64encode(b'bob:secret').decode()}" in head
    assert "key" not in " ".join(head)


def test_what_needs_no_proxy_goes_without(
    wire: Wire, to: Callable[..., Connections], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("all_proxy", "socks5://127.0.0.1:1")
    with pytest.raises(ValueError, match="http://host:port"):
        to("http://provider.example")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    wire.answers = [OK]
    assert to().exchange("GET", "", None, 5).content == b"hi"


def test_paths_are_not_logged_but_those_of_the_program_are(
    wire: Wire, to: Callable[..., Connections], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = f"http://127.0.0.1:{wire.port}"
    wire.answers = [OK, OK]
    to(f"{url}/hooks/s3cret?key=t0ken").exchange("POST", "", b"{}", 5)
    assert "s3cret" not in caplog.text
    assert "t0ken" not in caplog.text
    with urllib3.PoolManager() as other:
        other.request("GET", f"{url}/of-the-program")
    assert "/of-the-program" in caplog.text


def test_a_connection_that_was_idle_for_long_is_not_used_again(
    wire: Wire, to: Callable[..., Connections], monkeypatch: pytest.MonkeyPatch
) -> None:
    wire.answers = [OK, OK]
    connections = to()
    connections.exchange("GET", "", None, 5)
    monkeypatch.setattr("evervec.runtime.http.KEPT_SECONDS", 0.0)
    connections.exchange("GET", "", None, 5)
    assert wire.accepted == 2


def test_a_streamed_answer_may_take_longer_than_its_silences(
    wire: Wire, to: Callable[..., Connections]
) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    wire.pause = 0.1
    wire.answers = [head + b"3\r\nabc\r\n", b"2\r\nde\r\n", b"0\r\n\r\n"] * 2
    wire.parts = 3
    connections = to()
    assert connections.exchange("GET", "", None, 0.15, streamed=True).content == b"abcde"
    with pytest.raises(TimeoutError):
        connections.exchange("GET", "", None, 0.15)


def test_closed_ones_are_of_no_use(wire: Wire, to: Callable[..., Connections]) -> None:
    connections = to()
    connections.close()
    with pytest.raises(RuntimeError, match="closed"):
        connections.exchange("GET", "", None, 5)
