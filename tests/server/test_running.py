"""`evervec serve` as its users meet it: started, stopped, killed, and asked by many at once."""

import asyncio
import json
import random
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result
from uvicorn import Config

import evervec
from evervec import Client, EvervecError, InvalidArgument, SettingsError, StoreError
from evervec.cli.app import cli
from evervec.server import serve
from evervec.server.keys import Keys
from support.processes import until
from support.service import ServiceProcess, free_port

Start = Callable[..., ServiceProcess]
Command = Callable[..., Result]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[ServiceProcess] = []

    def run(*args: str, **options: object) -> ServiceProcess:
        started.append(ServiceProcess(tmp_path, *args, **options))  # type: ignore[arg-type]
        return started[-1]

    yield run
    for service in started:
        service.close()


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line in this process, in the folder of the store."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVERVEC_EMBEDDER", "hashing")
    return lambda *args: CliRunner().invoke(cli, args)


def test_one_command_is_a_whole_system_and_a_signal_drains_it(start: Start, tmp_path: Path) -> None:
    service = start()
    assert "no keys exist" in service.log.read_text()
    with Client(service.url) as client:
        ticket = client.add("note", "Tea is grown on hills", id="tea", wait=20)
        assert client.search("tea", after=ticket)[0].id == "tea"
    answered: list[httpx.Response] = []

    def wait_long() -> None:  # for what is never embedded: its time has not come
        body = {"kind": "note", "id": "later", "text": "later", "delay": 1000}
        with httpx.Client(base_url=service.url, timeout=60) as http:
            answered.append(http.post("/v1/records", json=body, headers={"Prefer": "wait=50"}))

    waiter = threading.Thread(target=wait_long)
    waiter.start()
    with sqlite3.connect(tmp_path / "evervec.db") as conn:
        until(lambda: conn.execute("select 1 from evervec_records where id = 'later'").fetchone())
    conn.close()
    began = time.monotonic()
    assert service.terminate() == 0
    assert f"dashboard: {service.url}/" in service.log.read_text()
    assert "everything is drained" in service.log.read_text()
    waiter.join()
    assert time.monotonic() - began < 25
    assert [response.status_code for response in answered] == [202]
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:
        assert ev.get("note", "later") is not None
        assert ev.store.workers.all() == []


def test_a_signal_ends_it_in_time_though_a_provider_hangs(start: Start, tmp_path: Path) -> None:
    """Sixteen searches, an open batch, a wait and a worker, none of which would end by itself."""
    with socket.create_server(
        ("127.0.0.1", 0), backlog=64
    ) as silent:  # it takes, and never answers
        service = start(
            EVERVEC_EMBEDDER="openai:text-embedding-3-small", OPENAI_API_KEY="k",
            EVERVEC_OPENAI_URL=f"http://127.0.0.1:{silent.getsockname()[1]}",
            EVERVEC_QUERY_SECONDS="3600", EVERVEC_PROVIDER_SECONDS="3600",
            EVERVEC_DRAIN_SECONDS="1",
        )  # fmt: skip
        body = {"kind": "note", "id": "1", "text": "tea"}
        added = httpx.post(f"{service.url}/v1/records", json=body)
        assert added.status_code == 202
        search = json.dumps({"query": "tea"})
        head = "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {}\r\n"
        requests = [
            head.format("/v1/records/batch?kind=note", "application/x-ndjson")
            + "Transfer-Encoding: chunked\r\n\r\n",
            *16 * [head.format("/v1/search", "application/json")
                   + f"Content-Length: {len(search)}\r\n\r\n{search}"],
        ]  # fmt: skip
        opened = []
        for request in requests:
            opened.append(socket.create_connection(("127.0.0.1", service.port)))
            opened[-1].sendall(request.encode())

        def running() -> bool:
            return "evervec_requests_running 8.0" in httpx.get(f"{service.url}/metrics").text

        until(running)
        assert service.terminate() == 0
        for connection in opened:
            connection.close()
    with evervec.open(tmp_path / "evervec.db", embedder="noop") as ev:
        assert ev.get("note", "1") is not None


def test_many_connections_are_accepted_in_few_turns_of_the_event_loop() -> None:
    """uvloop accepts one per turn and listening socket: clients that open many would keep all others
    waiting."""
    sockets = serve._listening("127.0.0.1", 0)
    address, turns, made = sockets[0].getsockname(), 0, 0

    class Counted(asyncio.Protocol):
        def connection_made(self, _: asyncio.BaseTransport) -> None:
            nonlocal made
            made += 1

    async def accept(clients: int) -> None:
        nonlocal turns
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            for listening in sockets:
                server = await loop.create_server(Counted, sock=listening, backlog=1024)
                stack.callback(server.close)
            for _ in range(clients):
                stack.enter_context(socket.create_connection(address))
            while made < clients:
                turns += 1
                await asyncio.sleep(0)

    make = Config(serve).get_loop_factory()  # type: ignore[arg-type]
    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(accept(128))
    assert turns < 64


def test_it_refuses_to_listen_where_it_must_not_or_cannot(command: Command) -> None:
    refused = command("serve", "--host", "0.0.0.0").exception
    assert isinstance(refused, SettingsError)
    assert "keys create" in str(refused)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = command("serve", "--port", str(taken.getsockname()[1])).exception
    assert isinstance(busy, EvervecError)
    assert "choose another" in str(busy)


def test_keys_are_made_listed_and_revoked_on_the_command_line(
    command: Command, start: Start
) -> None:
    made = command(
        "--tenant", "acme", "keys", "create", "--agent", "a1", "--role", "reader", "--expires",
        "1d", "--json",
    )  # fmt: skip
    key = json.loads(made.stdout)
    service = start("--host", "0.0.0.0", "--workers-inside", "0")
    headers = {"Authorization": f"Bearer {key['key']}"}
    assert httpx.get(f"{service.url}/v1/records", headers=headers).status_code == 200
    assert httpx.get(f"{service.url}/v1/records").status_code == 401
    listed = command("keys", "list").stdout
    assert key["prefix"] in listed
    assert key["key"] not in listed
    assert command("--tenant", "other", "keys", "list", "--json").stdout == "[]\n"
    assert command("keys", "revoke", key["id"]).exit_code == 0
    assert httpx.get(f"{service.url}/v1/records", headers=headers).status_code == 401
    assert isinstance(command("keys", "revoke", key["id"]).exception, InvalidArgument)
    assert key["key"] not in service.log.read_text()


def memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


class Crowd:
    """Clients that add and search without pause, and remember what was acknowledged."""

    def __init__(self, url: str, key: str, clients: int, retries: int) -> None:
        self._url, self._key, self._retries = url, key, retries
        self._stop = threading.Event()
        self.acknowledged: dict[str, str] = {}
        self.errors: list[str] = []
        self.searches = 0
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(clients)]

    def _run(self, number: int) -> None:
        chance = random.Random(number)
        with Client(self._url, self._key, retries=self._retries, timeout=60) as client:
            turn = 0
            while not self._stop.is_set():
                turn += 1
                id, text = f"{number}-{turn}", f"word{chance.randrange(1000)} of {number} at {turn}"
                try:
                    if turn % 3:
                        client.add("note", text, id=id)
                        self.acknowledged[id] = text
                    else:
                        client.search(text, k=3)
                        self.searches += 1
                except EvervecError as error:
                    self.errors.append(f"{type(error).__name__}: {error}")

    def __enter__(self) -> "Crowd":
        for thread in self._threads:
            thread.start()
        return self

    def served(self, adds: int) -> None:
        """Wait until so many more of its adds were acknowledged."""
        enough = len(self.acknowledged) + adds
        until(lambda: len(self.acknowledged) >= enough, "the crowd to be served")

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def admin_key(folder: Path) -> str:
    """One that no rate limit holds back."""
    with evervec.open(folder / "evervec.db", embedder="hashing") as ev:
        return Keys(ev.store).create("default", "crowd", "admin").key


def assert_all_found(folder: Path, acknowledged: dict[str, str]) -> None:
    assert acknowledged
    with evervec.open(folder / "evervec.db", embedder="hashing") as ev:
        ev.queue.recover_stuck(0.0)  # what a killed service held
        ev.process_all()
        saved = {record.id: record.text for record in ev.records(limit=1_000_000)}
        lost = {id for id, text in acknowledged.items() if saved.get(id) != text}
        assert not lost
        some = random.Random(1).sample(sorted(acknowledged), min(50, len(acknowledged)))
        for id in some:
            hits = ev.search(acknowledged[id], k=20, mode="semantic")
            assert id in [hit.id for hit in hits], id
        assert ev.verify().clean


def load(start: Start, folder: Path, seconds: float, clients: int, kills: int) -> Crowd:
    """A crowd for a while; with `kills`, the service dies and comes again meanwhile."""
    port, key = free_port(), admin_key(folder)
    service = start(port=port)
    with Crowd(service.url, key, clients, retries=12) as crowd:
        middle = time.monotonic() + seconds / 2
        for _ in range(kills):
            time.sleep(seconds / (kills + 1))
            service.kill()
            service = start(port=port)
        time.sleep(max(0.0, middle - time.monotonic()))
        half = memory_mb(service.pid)
        time.sleep(seconds / 2 if not kills else seconds / (kills + 1))
        ended = memory_mb(service.pid)
    service.terminate()
    print(
        f"{clients} clients, {seconds:g} s, {kills} kills: {len(crowd.acknowledged)} adds, "
        f"{crowd.searches} searches, {half:.0f} then {ended:.0f} MB, {len(crowd.errors)} errors"
    )
    assert crowd.errors == []
    assert ended < half + 150
    assert_all_found(folder, crowd.acknowledged)
    return crowd


def test_a_crowd_is_served_though_the_service_is_killed(start: Start, tmp_path: Path) -> None:
    port, key = free_port(), admin_key(tmp_path)
    service = start(port=port)
    # they try again until the service is there, however long it takes to start on this machine
    with Crowd(service.url, key, clients=40, retries=100) as crowd:
        crowd.served(100)
        for _ in range(2):
            service.kill()
            service = start(port=port)
            crowd.served(100)
    service.terminate()
    assert crowd.errors == []
    assert_all_found(tmp_path, crowd.acknowledged)


@pytest.mark.long
@pytest.mark.parametrize("kills", [0, 2])
def test_two_hundred_clients_for_a_minute(start: Start, tmp_path: Path, kills: int) -> None:
    crowd = load(start, tmp_path, seconds=60.0, clients=200, kills=kills)
    assert crowd.searches > 200


def test_a_store_that_goes_away_is_told_as_such(start: Start, tmp_path: Path) -> None:
    service = start()
    with Client(service.url, retries=0) as client:
        client.add("note", "text", id="1")
        ready = httpx.get(f"{service.url}/readyz").json()
        assert {name: part["reason"] for name, part in ready.items() if name != "status"} == {
            "store": "ok", "disk": "ok", "index": "ok", "provider": "ok", "workers": "ok",
        }  # fmt: skip
        with sqlite3.connect(tmp_path / "evervec.db", isolation_level=None) as conn:
            conn.execute("drop table evervec_jobs")
            conn.execute("drop table evervec_meta")
        conn.close()
        until(lambda: httpx.get(f"{service.url}/readyz").status_code == 503)
        assert not httpx.get(f"{service.url}/readyz").json()["store"]["ok"]
        with pytest.raises(StoreError):
            client.add("note", "text", id="2")
        assert httpx.get(f"{service.url}/healthz").status_code == 200


def test_keys_are_rotated_and_audited_on_the_command_line(command: Command) -> None:
    made = json.loads(command("keys", "create", "--role", "reader", "--json").stdout)
    rotated = command("keys", "rotate", made["prefix"], "--overlap", "0s", "--json")
    new = json.loads(rotated.stdout)
    assert (new["role"], new["tenant"]) == ("reader", "default")
    with evervec.open("evervec.db", embedder="hashing") as ev:
        assert set(Keys(ev.store).good([made["id"], new["id"]])) == {new["id"]}
        ev.add("note", "x", id="1")
    assert command("delete", "note", "1").exit_code == 0
    assert command("keys", "revoke", new["prefix"]).exit_code == 0
    entries = json.loads(command("audit", "--json").stdout)
    assert [entry["action"] for entry in entries] == [
        "key.revoke", "record.delete", "key.rotate", "key.create",
    ]  # fmt: skip
    assert entries[1]["target"] == "note/1"
    assert all(entry["agent"].startswith("command line (") for entry in entries)
    assert new["key"] not in command("audit").stdout
    assert "record.delete" in command("audit", "--since", "1h", "--action", "record.delete").stdout
    assert command("audit", "--key", new["prefix"]).stdout == "no entries\n"
