"""The head of a response travels with its body, and no byte is lost or out of order."""

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from evervec.server.connections import Connections
from evervec.server.protocol import BoundedProtocol
from evervec.server.transport import JoiningTransport
from evervec.settings import Settings
from support.world import Clock

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"


class Wire:
    """A transport that keeps what is sent at once."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def writelines(self, parts: Any) -> None:
        self.sent.append(b"".join(parts))

    is_gone = False

    def is_closing(self) -> bool:
        return self.is_gone

    def close(self) -> None:
        self.sent.append(b"closed")

    def abort(self) -> None:
        self.sent.append(b"aborted")

    def write_eof(self) -> None:
        self.sent.append(b"eof")

    def get_write_buffer_size(self) -> int:
        return 7


class Turns:
    """An event loop whose next turn a test makes."""

    def __init__(self) -> None:
        self.later: list[Any] = []

    def call_soon(self, do: Any) -> Any:
        self.later.append(do)
        return self

    def cancel(self) -> None:
        self.later.clear()

    def turn(self) -> None:
        for do in list(self.later):
            do()


def pair() -> tuple[JoiningTransport, Wire, Turns]:
    wire, loop = Wire(), Turns()
    return JoiningTransport(wire, loop), wire, loop  # type: ignore[arg-type]


def test_a_head_is_sent_with_its_body() -> None:
    transport, wire, loop = pair()
    for body in (b"body", b"more"):
        transport.write(HEAD)
        transport.write(body)
    loop.turn()
    assert wire.sent == [HEAD + b"body", HEAD + b"more"]


def test_a_head_whose_body_is_late_is_sent_in_the_next_turn() -> None:
    transport, wire, loop = pair()
    transport.write(HEAD)
    assert wire.sent == []
    assert transport.get_write_buffer_size() == len(HEAD) + 7
    loop.turn()
    transport.write(b"body")
    loop.turn()
    assert wire.sent == [HEAD, b"body"]
    assert transport.get_write_buffer_size() == 7


def test_a_head_is_sent_before_the_connection_ends() -> None:
    for end, said in (("close", b"closed"), ("write_eof", b"eof")):
        transport, wire, loop = pair()
        transport.write(HEAD)
        getattr(transport, end)()
        loop.turn()
        assert wire.sent == [HEAD, said]


def test_bodies_that_look_like_heads_keep_their_order() -> None:
    transport, wire, loop = pair()
    for data in (HEAD, HEAD, HEAD, b"", b"end\r\n\r\n"):
        transport.write(data)
    loop.turn()
    assert b"".join(wire.sent) == 3 * HEAD + b"end\r\n\r\n"


def test_other_calls_reach_the_connection() -> None:
    transport, wire, _ = pair()
    transport.abort()
    assert wire.sent == [b"aborted"]


async def send(*parts: bytes) -> bytes:
    """What a client receives over a real connection."""

    class Server(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            joined = JoiningTransport(transport, asyncio.get_running_loop())
            for part in parts:
                joined.write(part)
            joined.close()

    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    received = await reader.read()
    writer.close()
    server.close()
    return received


def test_a_client_receives_all_of_a_large_response() -> None:
    body = bytes(range(256)) * 20_000
    assert asyncio.run(send(HEAD, body)) == HEAD + body
    assert asyncio.run(send(HEAD)) == HEAD


def test_nothing_is_sent_to_a_client_that_has_gone() -> None:
    """Some event loops raise an error then."""
    transport, wire, loop = pair()
    transport.write(HEAD)
    wire.is_gone = True
    loop.turn()
    for part in (HEAD, b"body", b"more"):
        transport.write(part)
        loop.turn()
    assert wire.sent == []


class Peer:
    """A socket whose peer has gone, or the one of a proxy on this machine."""

    def __init__(self, own: object) -> None:
        self._own = own

    def getsockname(self) -> object:
        return self._own

    def getpeername(self) -> object:
        if isinstance(self._own, tuple):
            raise OSError(errno.ENOTCONN, "it has gone")
        return ""


class Accepted(Wire):
    """The transport of a new connection."""

    def __init__(self, own: object) -> None:
        super().__init__()
        self._socket = Peer(own)

    def get_extra_info(self, name: str) -> object:
        return self._socket if name == "socket" else None


def protocol_of(connections: Connections) -> BoundedProtocol:
    return BoundedProtocol(
        connections, Settings(), config=Config(None, loop="none"),  # type: ignore[arg-type]
        server_state=ServerState(), app_state={},
    )  # fmt: skip


@pytest.mark.parametrize(("own", "admitted"), [(("127.0.0.1", 80), 0), ("/run/evervec.sock", 1)])
def test_a_connection_without_an_address_is_of_a_client_that_has_gone(
    own: object, admitted: int
) -> None:
    """Who resets connections at once would else pass the limits of clients. A UNIX socket has no
    addresses either."""
    connections, wire = Connections(Settings()), Accepted(own)

    async def connect() -> None:
        protocol_of(connections).connection_made(wire)  # type: ignore[arg-type]

    asyncio.run(connect())
    assert len(connections) == admitted
    assert (b"aborted" in wire.sent) is (not admitted)


class Reached(Peer):
    """A socket with the address of its peer."""

    def getpeername(self) -> object:
        return ("192.0.2.1", 5000)


class Pausing(Accepted):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 80))
        self._socket = Reached(("127.0.0.1", 80))

    def pause_reading(self) -> None:
        self.sent.append(b"paused")


def test_a_connection_that_is_refused_is_not_read_and_answered_later() -> None:
    """Who opens connections faster than allowed would else open the next one at once."""
    clock, settings = Clock(1000.0), Settings(server_client_connections=1, server_client_rate=0.001)
    connections = Connections(settings, clock=clock)

    async def connect(gone: bool) -> list[bytes]:
        loop, wire, protocol = asyncio.get_running_loop(), Pausing(), protocol_of(connections)
        due: list[Callable[[], object]] = []
        handles: list[asyncio.TimerHandle] = []
        later = loop.call_later

        def call_later(seconds: float, do: Callable[..., object], *given: object) -> object:
            assert seconds == 1.0
            due.append(lambda: do(*given))
            handles.append(later(3600, do))
            return handles[-1]

        loop.call_later = call_later  # type: ignore[method-assign, assignment]
        protocol.connection_made(wire)  # type: ignore[arg-type]
        if gone:
            protocol.connection_lost(None)
        assert connections.delays._held == len(due) - gone * len(due)
        for do in due[: not gone]:
            wire.sent.append(b"later")
            do()
        assert not connections.delays._held
        assert all(handle.cancelled() for handle in handles)
        return wire.sent

    assert asyncio.run(connect(gone=False)) == []  # admitted
    for _ in range(10):
        first, *_ = asyncio.run(connect(gone=False))
        assert first.startswith(b"HTTP/1.1 429")
    paused, later, answer, *_ = asyncio.run(connect(gone=False))
    assert (paused, later) == (b"paused", b"later")
    assert answer.startswith(b"HTTP/1.1 429")
    assert not any(sent.startswith(b"HTTP") for sent in asyncio.run(connect(gone=True)))
