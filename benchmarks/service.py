"""The service beside a bare FastAPI route that inserts one row, and beside `add_many`.

Records of 60 words. Both servers are processes of their own over an SQLite file, and what
they answer for is synced to disk. The service takes a key, counts the rate limit, writes
record, full text and job, and (in one of the lines) embeds with a worker inside; the route
inserts a row. Many clients keep a connection each; one client sends its requests one by one.
A batch is one request; beside it stands `add_many` in this process.
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
from contextlib import contextmanager
from pathlib import Path

import httpx

import evervec
from benchmarks.made_up import NoCost, texts
from benchmarks.rounds import Contender, Measured, stopwatch, take_turns
from benchmarks.table import Line, at_least
from evervec.keys import Keys

_WORDS = 60
_CROWD = 32


def run(*, quick: bool) -> Sequence[Line]:
    made = texts(4_000 if quick else 20_000, _WORDS)
    singles = 1_000 if quick else 4_000
    contenders: dict[str, Contender] = {
        "service": lambda folder: _service(folder, made[:singles], "0"),
        "with a worker": lambda folder: _service(folder, made[:singles], "1"),
        "bare": lambda folder: _bare(folder, made[:singles]),
        "batch": lambda folder: _batch(folder, made),
        "add_many": lambda folder: _add_many(folder, made),
    }
    found = take_turns(contenders, rounds=3)
    own, working, bare = found["service"], found["with a worker"], found["bare"]
    unit, route, half = "requests/s", "bare FastAPI route", at_least(0.5)
    return [
        Line(f"add, {_CROWD} clients", unit, own["crowd"], route, bare["crowd"], half),
        Line("  with a worker inside", unit, working["crowd"], route, bare["crowd"], half),
        Line("add, one client", unit, own["one"], route, bare["one"], half),
        Line("  with a worker inside", unit, working["one"], route, bare["one"], half),
        Line(
            "batch", "records/s", found["batch"]["all"], "add_many", found["add_many"]["all"], half
        ),
    ]


def _service(folder: Path, made: list[str], workers: str) -> Measured:
    with _serving(folder, workers) as (port, key):
        return asyncio.run(_ask(port, made, key))


def _bare(folder: Path, made: list[str]) -> Measured:
    port = _free_port()
    program = [sys.executable, "-m", "benchmarks.service_bare", str(folder / "bare.db"), str(port)]
    with _process(program, port):
        return asyncio.run(_ask(port, made, "none"))


def _batch(folder: Path, made: list[str]) -> Measured:
    lines = (json.dumps({"kind": "note", "id": n, "text": t}) for n, t in enumerate(made))
    body = "\n".join(lines).encode()
    with _serving(folder, "0") as (port, key), stopwatch() as watch:
        answered = httpx.post(
            f"http://127.0.0.1:{port}/v1/records/batch",
            content=body,
            headers={"Authorization": f"Bearer {key}", "Content-Type": "application/x-ndjson"},
            timeout=120,
        )
    assert answered.text.count("\n") == len(made)
    return {"all": len(made) / watch.seconds}


def _add_many(folder: Path, made: list[str]) -> Measured:
    records = [{"id": str(n), "text": text} for n, text in enumerate(made)]
    with evervec.open(folder / "records.db", embedder=NoCost()) as ev, stopwatch() as watch:
        tickets = list(ev.add_many("note", records))
    assert len(tickets) == len(made)
    return {"all": len(made) / watch.seconds}


@contextmanager
def _serving(folder: Path, workers: str) -> Iterator[tuple[int, str]]:
    """`evervec serve` over a new store, and a writer's key that is never held back."""
    path, port = folder / "records.db", _free_port()
    with evervec.open(path, embedder="hashing") as ev:
        key = Keys(ev.store).create("default", "bench", "writer").key
    program = [
        sys.executable, "-m", "evervec", "--store", str(path), "--embedder", "hashing", "serve",
        "--port", str(port), "--workers-inside", workers,
    ]  # fmt: skip
    with _process(program, port, EVERVEC_RATE_PER_SECOND="1e6", EVERVEC_RATE_BURST="1000000"):
        yield port, key


@contextmanager
def _process(program: list[str], port: int, **environ: str) -> Iterator[None]:
    running = subprocess.Popen(program, env={**os.environ, **environ}, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=1)
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield
    finally:
        running.terminate()
        running.wait(30)


async def _ask(port: int, made: list[str], key: str) -> Measured:
    """Requests a second of a crowd, and of one client behind it."""
    requests = [_request(n, text, key) for n, text in enumerate(made)]
    alone = requests[: len(requests) // 10]
    crowd = requests[len(alone) :]
    await _send(port, crowd[:_CROWD], _CROWD)  # the first ones make threads and the like
    with stopwatch() as many:
        await _send(port, crowd[_CROWD:], _CROWD)
    with stopwatch() as one:
        await _send(port, alone, 1)
    return {"crowd": (len(crowd) - _CROWD) / many.seconds, "one": len(alone) / one.seconds}


async def _send(port: int, requests: list[bytes], clients: int) -> None:
    waiting = iter(requests)

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for request in waiting:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 202"), head
            length = next(
                int(line.split(b":")[1])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length")
            )
            await reader.readexactly(length)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))


def _request(number: int, text: str, key: str) -> bytes:
    body = json.dumps({"kind": "note", "id": str(number), "text": text}).encode()
    head = (
        f"POST /v1/records HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port
