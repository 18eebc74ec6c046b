"""The service beside a bare FastAPI route that inserts one row, and beside `add_many`.

Records of 60 words. Both servers are processes of their own over an SQLite file, and what
they answer for is synced to disk. The service takes a key, counts the rate limit, and writes
record, full text and job; the route inserts a row. With a worker inside it embeds and indexes
meanwhile, which the route does not, so that has no target. Many clients keep a connection each; one client sends its requests one by one.
A batch is one request; beside it stands `add_many` in this process.

Then two hundred clients, half of whose requests are adds and half searches by vector, over more and
more vectors of their tenant, with a worker inside: beside each the same over the fewest. Services take
turns.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import httpx

import evervec
from benchmarks.made_up import NoCost, texts
from benchmarks.rounds import stopwatch
from benchmarks.table import Line, at_least
from evervec.server.keys import Keys

_WORDS = 60
_CROWD = 32
_AT_ONCE = 4_000
_MANY_CLIENTS = 200
_ROUND = 2 * _MANY_CLIENTS
_FEW, _MANY = (500, 5_000), (1_000, 10_000, 100_000)
_STEADY = at_least(1 / 1.3)
_PATIENCE = 60.0
"""seconds for a server to come up"""
_NDJSON = {"Content-Type": "application/x-ndjson"}


def run(*, quick: bool) -> Sequence[Line]:
    made = texts(12_000 if quick else 60_000, _WORDS)
    singles = made[: 1_500 if quick else 6_000]
    idle, working = _adds(singles, "0"), _adds(singles, "1")
    half, unit, route = at_least(0.5), "requests/s", "bare FastAPI route"
    lines = [
        Line(what, unit, found[crowd][0], route, found[crowd][1], target)
        for crowd, name in ((_CROWD, f"{_CROWD} clients"), (1, "one client"))
        for what, found, target in (
            (f"add, {name}", idle, half),
            ("  with a worker inside", working, None),
        )
    ]
    own, library = _batches(made)
    batch = Line("batch", "records/s", own, "add_many", library, half)
    return [*lines, batch, *_growth(_FEW if quick else _MANY, 1_200 if quick else 6_000)]


def _growth(sizes: Sequence[int], requests: int) -> Iterator[Line]:
    """Requests a second of a crowd, over so many vectors."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="evervec-bench-")))
        served = [
            stack.enter_context(_serving(folder, "1", name=f"{size}.db", size=size))
            for size in sizes
        ]
        took = dict.fromkeys(sizes, 0.0)
        words = texts(requests, 3, seed=2)
        for start in range(-_ROUND, requests, _ROUND):  # the first makes threads and the like
            for size, (port, key) in zip(sizes, served, strict=True):
                asked = [
                    _search(text, key) if n % 2 else _request(start + n, text, key)
                    for n, text in enumerate(words[start:][:_ROUND])
                ]
                with stopwatch() as watch:
                    asyncio.run(_send(port, asked, _MANY_CLIENTS))
                took[size] += watch.seconds if start >= 0 else 0.0
                _settle(port, key)
    rates = {size: requests / seconds for size, seconds in took.items()}
    fewest, *more = sizes
    for size in more:
        what = f"{_MANY_CLIENTS} clients, {size:,} vectors"
        yield Line(what, "requests/s", rates[size], f"{fewest:,} vectors", rates[fewest], _STEADY)


def _adds(made: list[str], workers: str) -> dict[int, tuple[float, float]]:
    """By the number of clients, requests a second of the service and of the bare route. Both
    run, and take turns by a few requests, so that a slow moment of the disk is nobody's alone."""
    port = free_port()
    with (
        TemporaryDirectory(prefix="evervec-bench-") as folder,
        _serving(Path(folder), workers) as (own, key),
        process(
            [sys.executable, "-m", "benchmarks.service_bare", f"{folder}/b.db", str(port)], port
        ),
    ):
        requests = [_request(n, text, key) for n, text in enumerate(made)]
        first, rest = requests[: 2 * _CROWD], requests[2 * _CROWD :]
        few = len(rest) // 5
        return asyncio.run(
            _turns({own: key, port: None}, first, {_CROWD: rest[few:], 1: rest[:few]})
        )


async def _turns(
    servers: dict[int, str | None], first: list[bytes], given: dict[int, list[bytes]]
) -> dict[int, tuple[float, float]]:
    for port in servers:
        await _send(port, first, _CROWD)  # these make threads and the like
    rates = {}
    for clients, requests in given.items():
        took = dict.fromkeys(servers, 0.0)
        size = 8 * clients if clients > 1 else 100
        for start in range(0, len(requests), size):
            for port, key in servers.items():
                with stopwatch() as watch:
                    await _send(port, requests[start : start + size], clients)
                took[port] += watch.seconds
                if key:
                    await asyncio.to_thread(_settle, port, key)
        own, bare = (len(requests) / seconds for seconds in took.values())
        rates[clients] = (own, bare)
    return rates


def _settle(port: int, key: str) -> None:
    """Let a worker inside finish, so that it does not work while the other has its turn."""
    with httpx.Client(headers={"Authorization": f"Bearer {key}"}) as client:
        while True:
            stats = client.get(f"http://127.0.0.1:{port}/v1/queue/stats").json()
            if stats["done"] == 0 or not stats["pending"] + stats["processing"]:
                return
            time.sleep(0.01)


def _batches(made: list[str]) -> tuple[float, float]:
    """Records a second of the batch endpoint and of `add_many`, in turns too."""
    took = [0.0, 0.0]
    with (
        TemporaryDirectory(prefix="evervec-bench-") as folder,
        _serving(Path(folder), "0") as (port, key),
        evervec.open(Path(folder) / "library.db", embedder=NoCost()) as ev,
        httpx.Client(timeout=120, headers={"Authorization": f"Bearer {key}", **_NDJSON}) as client,
    ):
        for start in range(0, len(made), _AT_ONCE):
            records = [
                {"kind": "note", "id": str(start + n), "text": text}
                for n, text in enumerate(made[start : start + _AT_ONCE])
            ]
            body = "\n".join(map(json.dumps, records)).encode()
            plain = [{"id": record["id"], "text": record["text"]} for record in records]
            with stopwatch() as watch:
                answered = client.post(f"http://127.0.0.1:{port}/v1/records/batch", content=body)
            assert answered.text.count("\n") == len(records)
            took[0] += watch.seconds
            with stopwatch() as watch:
                tickets = list(ev.add_many("note", plain))
            assert len(tickets) == len(records)
            took[1] += watch.seconds
    return len(made) / took[0], len(made) / took[1]


@contextmanager
def _serving(
    folder: Path, workers: str, name: str = "records.db", size: int = 0
) -> Iterator[tuple[int, str]]:
    """`evervec serve` over a new store with so many records, and a writer's key that is never
    held back."""
    path, port = folder / name, free_port()
    with evervec.open(path, embedder="hashing") as ev:
        key = Keys(ev.store).create("default", "bench", "writer").key
        records = ({"id": f"old {n}", "text": text} for n, text in enumerate(texts(size, _WORDS)))
        for _ in ev.add_many("note", records):
            pass
        ev.process_all()
    program = [
        sys.executable, "-m", "evervec", "--store", str(path), "--embedder", "hashing", "serve",
        "--port", str(port), "--workers-inside", workers,
    ]  # fmt: skip
    free = {"RATE_PER_SECOND": "1e6", "RATE_BURST": "1000000", "SERVER_CLIENT_RATE": "1e6"}
    with process(program, port, **{f"EVERVEC_{name}": value for name, value in free.items()}):
        yield port, key


@contextmanager
def process(program: list[str], port: int, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server; if it does not come up, `RuntimeError` with its own words."""
    with (
        TemporaryFile() as words,
        subprocess.Popen(program, env={**os.environ, **environ}, stderr=words) as running,
    ):
        try:
            if not _comes_up(running, port):
                words.seek(0)
                said = words.read().decode(errors="replace").strip()
                raise RuntimeError(f"{' '.join(program)} does not serve: {said or 'no word'}")
            yield running
        finally:
            running.terminate()


def _comes_up(running: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while running.poll() is None and time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=1).is_success
        time.sleep(0.05)
    return False


async def _send(port: int, requests: list[bytes], clients: int) -> None:
    waiting = iter(requests)

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for request in waiting:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith((b"HTTP/1.1 202", b"HTTP/1.1 200")), head
            length = next(
                int(line.split(b":")[1])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length")
            )
            await reader.readexactly(length)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))


def _request(number: int, text: str, key: str) -> bytes:
    return _posted("/v1/records", {"kind": "note", "id": str(number), "text": text}, key)


def _search(query: str, key: str) -> bytes:
    return _posted("/v1/search", {"query": query, "mode": "semantic"}, key)


def _posted(path: str, given: dict[str, str], key: str) -> bytes:
    body = json.dumps(given).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port
