"""What clients without a key may do: short forms, in time, not too many, not too often."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

import evervec
from evervec import Evervec
from evervec.server import delays
from evervec.server.app import make_app
from evervec.server.dashboard import page_routes
from evervec.server.dashboard.paths import SIGN_IN, THEME
from evervec.server.delays import Delays
from evervec.server.problems import Problem
from evervec.server.strangers import Strangers
from evervec.settings import Settings
from support.processes import until
from support.service import Serve, Served
from support.world import Clock

FORM = "application/x-www-form-urlencoded"
OPEN = (SIGN_IN, THEME)
Make = Callable[..., Served]


@pytest.fixture
def served(ev: Evervec, serve: Serve) -> Served:
    return serve(ev)


@pytest.fixture
def made(serve: Serve) -> Iterator[Make]:
    """Services over stores in memory, with settings."""
    opened = []

    def make(**settings: Any) -> Served:
        ev = evervec.open("memory:", embedder="hashing", **settings)
        opened.append(ev)
        return serve(ev)

    yield make
    for ev in opened:
        ev.close()


def begun(served: Served, path: str, head: str, sent: bytes = b"") -> socket.socket:
    """A form whose body has begun."""
    host, port = served.url.removeprefix("http://").split(":")
    conn = socket.create_connection((host, int(port)), 20)
    conn.sendall(
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: {FORM}\r\n{head}\r\n"
        "\r\n".encode()
        + sent
    )
    return conn


def status(conn: socket.socket) -> int:
    """Of the connection's last answer; 0: none."""
    data = b""
    try:
        while part := conn.recv(65536):
            data += part
    except ConnectionResetError:
        pass
    return int(data.split()[1]) if data else 0


# forms
@pytest.mark.parametrize("path", OPEN)
def test_a_form_of_strangers_is_short(served: Served, path: str) -> None:
    served.key()
    long = {"key": "a" * 20_000}
    assert served.http().post(path, data=long).status_code == 413
    with closing(begun(served, path, "Transfer-Encoding: chunked")) as conn:
        for _ in range(20):
            conn.sendall(b"400\r\n" + b"a" * 1024 + b"\r\n")
        assert status(conn) == 413


@pytest.mark.parametrize("path", OPEN)
def test_a_long_form_of_strangers_is_refused_before_it_is_read(served: Served, path: str) -> None:
    served.key()
    with closing(begun(served, path, "Content-Length: 9900000")) as conn:
        assert b" 413 " in conn.recv(65536).splitlines()[0]


def test_the_longest_forms_that_people_send_are_accepted(served: Served) -> None:
    key = served.key(role="writer")
    http = served.http()
    assert http.post(SIGN_IN, data={"key": key, "next": "/ui/" + "a" * 1990}).status_code == 303
    ids = urlencode([("ids", 10**8 + n) for n in range(1000)])
    bulk = http.post(
        "/ui/jobs/bulk",
        content=ids,
        headers={"Content-Type": FORM, "Authorization": "Bearer " + key},
    )
    assert bulk.status_code == 403  # its token is missing, but it was read


@pytest.mark.usefixtures("brief_linger")
@pytest.mark.parametrize("path", OPEN)
def test_a_trickled_form_ends_in_time(
    served: Served, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(page_routes, "_FORM_SECONDS", 0.2)
    with closing(begun(served, path, "Content-Length: 1000", b"key=a")) as conn:
        assert status(conn) == 408
    until(lambda: not served.app.state.service.calls)


# how many at once
@pytest.mark.usefixtures("no_delay")
def test_forms_under_way_of_one_client_are_few(made: Make) -> None:
    served = made(server_open_requests=3)
    held = [begun(served, SIGN_IN, "Content-Length: 100", b"key=a") for _ in range(3)]
    until(lambda: len(served.app.state.service.calls) == 3)
    http = served.http()
    refused = http.get(SIGN_IN)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert "server_open_requests" in refused.text
    assert http.get("/healthz").status_code == http.get("/readyz").status_code == 200
    assert served.http(served.key()).get("/v1/records").status_code == 200
    for conn in held:
        conn.close()
    until(lambda: not served.app.state.service.calls)
    assert http.get(SIGN_IN).status_code == 200


def test_the_lifespan_of_the_application_is_no_request(ev: Evervec) -> None:
    app = make_app(ev)
    with TestClient(app):
        assert app.state.background._started


# how often
def scope(client: str, path: str = SIGN_IN) -> dict[str, Any]:
    return {"path": path, "client_address": client}


@pytest.fixture
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "SECONDS", 0.0)


def passed(strangers: Strangers, times: int, **given: Any) -> int:
    count, refused = 0, []
    for _ in range(times):
        try:
            asyncio.run(strangers.admit(scope(**given)))
            count += 1
        except Problem as problem:
            refused.append((problem.status_code, problem.headers))
    assert refused in ([], [(429, {"Retry-After": "1"})] * len(refused))
    return count


@pytest.mark.usefixtures("no_delay")
def test_each_client_has_a_rate_of_its_own() -> None:
    clock = Clock(1000.0)
    settings = Settings(server_open_rate=10, trusted_proxies="10.0.0.7")
    strangers = Strangers(settings, Delays(), clock)
    assert passed(strangers, 100, client="192.0.2.1") == 40
    assert passed(strangers, 1, client="192.0.2.2") == 1
    clock.move(1)
    assert passed(strangers, 100, client="192.0.2.1") == 10
    with pytest.raises(Problem, match="server_open_rate"):
        asyncio.run(strangers.count_refused(scope("192.0.2.1", "/v1/records")))
    asyncio.run(strangers.count_refused(scope("192.0.2.2", "/v1/records")))
    assert passed(strangers, 100, client="10.0.0.7") == 100  # it has many clients
    assert passed(strangers, 100, client="") == 100
    for path in ("/healthz", "/readyz", "/internal/worker"):
        assert passed(strangers, 100, client="192.0.2.1", path=path) == 100


@pytest.mark.usefixtures("no_delay")
def test_a_network_of_addresses_is_one_client() -> None:
    strangers = Strangers(Settings(server_open_rate=1), Delays(), Clock(1000.0))
    found = [passed(strangers, 2, client=f"2001:db8:1:2::{n}") for n in range(5)]
    assert sum(found) == 4


@pytest.mark.usefixtures("no_delay")
def test_wrong_keys_are_refused_more_cheaply_after_some_and_good_ones_never(made: Make) -> None:
    served = made(server_open_rate=0.01)
    good = served.http(served.key())
    wrong = [served.http(f"ev_{'0' * 12}_x").get("/v1/records").status_code for _ in range(3)]
    assert wrong == [401, 429, 429]
    assert served.http().get("/v1/records").status_code == 429
    assert served.http().get("/docs").status_code == 429
    assert good.get("/v1/records").status_code == 200
    assert served.http().get("/healthz").status_code == 200


def test_what_is_refused_is_delayed_and_holds_up_nobody(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that asks again at once would keep the event loop busy with refusals."""
    begun, may_go_on = threading.Event(), threading.Event()

    async def hold(_: Delays, whose: str) -> None:
        assert whose == "127.0.0.1"
        begun.set()
        await asyncio.to_thread(may_go_on.wait, 30)

    monkeypatch.setattr(Delays, "hold", hold)
    served = made(server_open_rate=0.01)
    good, stranger = served.http(served.key()), served.http()
    assert stranger.get("/docs").status_code == 200
    with ThreadPoolExecutor(1) as pool:
        refused = pool.submit(stranger.get, "/docs")
        assert begun.wait(30)
        assert good.get("/v1/records").status_code == 200
        assert not refused.done()
        may_go_on.set()
        assert refused.result().status_code == 429


def test_the_first_refusals_of_a_client_are_not_delayed() -> None:
    clock = Clock(1000.0)
    held = Delays(clock)
    assert [held.begin("a") for _ in range(12)] == [False] * 10 + [True] * 2
    assert not held.begin("b")
    clock.move(1.0)
    assert [held.begin("a") for _ in range(3)] == [False, False, True]


def test_only_so_many_refusals_are_delayed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "_MOST", 2)
    monkeypatch.setattr(delays, "_BURST", 0)
    monkeypatch.setattr(delays, "SECONDS", 1000.0)

    async def hold_three() -> list[bool]:
        held = Delays(Clock(1000.0))
        waiting = [asyncio.create_task(held.hold("a")) for _ in range(3)]
        await asyncio.sleep(0)
        found = [task.done() for task in waiting]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert not held._held
        return found

    assert asyncio.run(hold_three()) == [False, False, True]
