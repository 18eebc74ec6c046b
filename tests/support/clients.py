"""Many clients of a service at once, each over a connection of its own, and one that attacks it.

Plain HTTP/1.1 over asyncio streams: two hundred clients must not cost more than what they measure.
Each tenant has an address of its own on the loopback network, as clients elsewhere would.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

WORDS = [
    f"{first}{last}" for first in "abcdefghij" for last in ("tea", "rock", "sea", "moon", "oak")
]
_PATIENCE = 60.0


class Connection:
    """One connection, opened again when it was closed."""

    def __init__(self, port: int, address: str, key: str) -> None:
        self._port, self._address, self._key = port, address, key
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, method: str, path: str, body: Any = None, media_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """Status and body of the answer; OSError if there is none."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = self.head(method, path, media_type, f"Content-Length: {len(content)}")
        reader, writer = await self.opened()
        try:
            async with asyncio.timeout(_PATIENCE):
                writer.write(head + content)
                await writer.drain()
                return await _answer(reader)
        except BaseException:
            self.close()
            raise

    def head(self, method: str, path: str, media_type: str, length: str) -> bytes:
        """The head of a request with the key."""
        return (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self._key}\r\n"
            f"Content-Type: {media_type}\r\n{length}\r\n\r\n"
        ).encode()

    async def opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None or self._streams[0].at_eof():
            self.close()
            self._streams = await asyncio.open_connection(
                "127.0.0.1", self._port, local_addr=(self._address, 0)
            )
        return self._streams

    def close(self) -> None:
        if self._streams:
            self._streams[1].close()
            self._streams = None


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("closed before an answer") from None
    status = int(head.split(" ", 2)[1])
    length = next(
        (int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), 0
    )
    try:
        return status, await reader.readexactly(length)
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("closed within an answer") from None


@dataclass
class Crowd:
    """Tenants that add and search, and what they met."""

    port: int
    keys: dict[str, str]
    each: int
    seed: int
    pause: float = 1.0
    saved: set[tuple[str, str]] = field(default_factory=set)
    """tenant and id of every add that was acknowledged"""
    errors: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    async def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        await asyncio.gather(
            *(
                self._client(place, tenant, key, number, end)
                for place, (tenant, key) in enumerate(self.keys.items())
                for number in range(self.each)
            )
        )

    async def _client(self, place: int, tenant: str, key: str, number: int, end: float) -> None:
        chance = random.Random(f"{self.seed} {tenant} {number}")
        connection = Connection(self.port, f"127.0.1.{place + 1}", key)
        count = 0
        await asyncio.sleep(chance.random() * self.pause)
        while time.monotonic() < end:
            began = time.perf_counter()
            text = " ".join(chance.choices(WORDS, k=8))
            try:
                if (count + number) % 2:
                    id = f"{self.seed}-{number}-{count}"
                    body = {"kind": "note", "id": id, "text": text}
                    status, said = await connection.ask("POST", "/v1/records", body)
                    if status < 300:
                        self.saved.add((tenant, id))
                else:
                    status, said = await connection.ask("POST", "/v1/search", {"query": text[:20]})
                if status >= 300:
                    self.errors[f"{status} {said[:200].decode('utf-8', 'replace')}"] += 1
                self.seconds.append(time.perf_counter() - began)
            except (OSError, TimeoutError) as error:
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(0.2)
            count += 1
            await asyncio.sleep(self.pause * (0.5 + chance.random()))
        connection.close()

    def percentile(self, share: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


Attack = Callable[[Connection, random.Random], Awaitable[object]]


async def attack(port: int, reader: str, writer: str, seconds: float, seed: int) -> Counter[str]:
    """Everything at once, for so long, from one address; what was answered, by kind of attack."""
    end = time.monotonic() + seconds
    met: Counter[str] = Counter()

    async def repeat(name: str, do: Attack, key: str, number: int) -> None:
        chance = random.Random(f"{seed} {name} {number}")
        connection = Connection(port, "127.0.2.1", key)
        while time.monotonic() < end:
            try:
                found = await do(connection, chance)
                met[f"{name}: {found[0] if isinstance(found, tuple) else found}"] += 1
            except (OSError, TimeoutError, asyncio.LimitOverrunError) as error:
                met[f"{name}: {type(error).__name__}"] += 1
                connection.close()
                await asyncio.sleep(0.05)
        connection.close()

    searches = {
        "filter of many fields": _many_fields,
        "filter of many values": _many_values,
        "deep filter": _deep_filter,
        "long query": _long_query,
        "combining marks": _combining_marks,
        "costly search": _costly_search,
        "gone before the answer": _gone,
        "forged cursor": _forged_cursor,
    }
    writes = {
        "kinds": _kinds,
        "priorities": _priorities,
        "nested metadata": _nested_metadata,
        "long texts": _long_texts,
        "batch": _batch,
    }
    opened = {"silence": _silence, "headers": _headers, "trickle": _trickle, "form": _trickled_form}
    sent = {"long form": _long_form, "wrong key": _wrong_key, "documentation": _documentation}
    held = {"endless body": _endless_body, "slow reader": _slow_reader}
    tasks = [
        repeat(name, do, key, number)
        for group, key, count in (
            (searches, reader, 4),
            (writes, writer, 4),
            (opened, reader, 40),
            (sent, reader, 4),
            (held, reader, 20),
            (held, writer, 20),
        )
        for name, do in group.items()
        for number in range(count)
    ]
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds + 5):
            await asyncio.gather(*tasks)
    return met


def _body(**parts: Any) -> bytes:
    return json.dumps(parts).encode()


# made once: it is the service that is to be busy
_MANY_FIELDS = _body(query="tea", filter={f"field{n}": n for n in range(40_000)})
_MANY_VALUES = _body(query="tea", filter={"field": {"in": list(range(100_000))}})
_LONG_QUERY = _body(query=" ".join(f"{WORDS[n % 50]}{n}" for n in range(15_000)))
_MARKS = _body(query="a" + "\u0315\u0300" * 120_000)
_NESTED = [
    _body(kind="note", text="tea", metadata={"deep": [[n, [n]] for n in range(many)]})
    for many in (400, 16_000)
]
_LONG_TEXTS = [
    _body(kind="note", id=f"long{step}", text=" ".join(WORDS[n * step % 50] for n in range(20_000)))
    for step in (1, 3, 7, 9)
]


async def _many_fields(to: Connection, _: random.Random) -> tuple[int, bytes]:
    return await to.ask("POST", "/v1/search", _MANY_FIELDS)


async def _many_values(to: Connection, _: random.Random) -> tuple[int, bytes]:
    return await to.ask("POST", "/v1/search", _MANY_VALUES)


async def _deep_filter(to: Connection, _: random.Random) -> tuple[int, bytes]:
    body = b'{"query":"tea","filter":' + b'{"a":' * 60 + b"1" + b"}" * 61
    return await to.ask("POST", "/v1/search", body)


async def _long_query(to: Connection, _: random.Random) -> tuple[int, bytes]:
    return await to.ask("POST", "/v1/search", _LONG_QUERY)


async def _combining_marks(to: Connection, _: random.Random) -> tuple[int, bytes]:
    return await to.ask("POST", "/v1/search", _MARKS)


async def _costly_search(to: Connection, chance: random.Random) -> tuple[int, bytes]:
    query = " ".join(chance.choices(WORDS, k=100))
    body = {"query": query, "k": 100, "filter": {"deep": {"gt": 3}}}
    return await to.ask("POST", "/v1/search", body)


async def _gone(to: Connection, chance: random.Random) -> str:
    task = asyncio.create_task(_costly_search(to, chance))
    await asyncio.sleep(0.01)
    task.cancel()
    with suppress(asyncio.CancelledError, OSError):
        await task
    to.close()
    return "gone"


async def _forged_cursor(to: Connection, chance: random.Random) -> tuple[int, bytes]:
    cursor = chance.choice(
        ["WzFlOTk5XQ", "W1siYSJdXQ", "WzEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzXQ", "A" * 9999]
    )
    return await to.ask("GET", f"/v1/jobs?cursor={cursor}")


async def _kinds(to: Connection, chance: random.Random) -> tuple[int, bytes]:
    return await to.ask(
        "POST", "/v1/records", {"kind": f"kind{chance.random()}", "text": "tea", "id": "1"}
    )


async def _priorities(to: Connection, chance: random.Random) -> tuple[int, bytes]:
    number = chance.randrange(-900, 900)
    body = {"kind": "note", "text": "tea", "priority": number, "delay": 3600}
    return await to.ask("POST", "/v1/records", body)


async def _nested_metadata(to: Connection, chance: random.Random) -> tuple[int, bytes]:
    return await to.ask("POST", "/v1/records", chance.choice(_NESTED))


async def _long_texts(to: Connection, chance: random.Random) -> tuple[int, bytes]:
    return await to.ask("POST", "/v1/records", chance.choice(_LONG_TEXTS))


async def _batch(to: Connection, chance: random.Random) -> tuple[int, bytes]:
    lines = [
        json.dumps({"kind": "note", "id": f"b{chance.randrange(5000)}", "text": "tea"})
        for _ in range(2000)
    ]
    lines.insert(chance.randrange(2000), "{nonsense")
    body = "\n".join(lines).encode()
    found = await to.ask("POST", "/v1/records/batch", body, media_type="application/x-ndjson")
    to.close()  # its tickets come in chunks, which nobody reads here
    return found


async def _silence(to: Connection, _: random.Random) -> str:
    reader, _writer = await to.opened()
    with suppress(TimeoutError):
        async with asyncio.timeout(20):
            await reader.read(1)
    to.close()
    return "closed"


async def _headers(to: Connection, chance: random.Random) -> str:
    reader, writer = await to.opened()
    writer.write(b"GET /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    for _ in range(200):
        writer.write(b"X-A%d: " % chance.randrange(10**9) + b"b" * 4000 + b"\r\n")
        await writer.drain()
    async with asyncio.timeout(20):
        await reader.read(100)
    to.close()
    return "answered"


async def _trickle(to: Connection, chance: random.Random) -> str:
    _reader, writer = await to.opened()
    writer.write(
        b"POST /internal/worker HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000000\r\n\r\n"
    )
    for _ in range(chance.randrange(5, 15)):
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(1)
    to.close()
    return "closed"


# of clients without a key
@cache
def _form() -> bytes:
    return b"&".join(b"k%d=%%41%%42" % n for n in range(800_000))


def _form_head(path: str, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


async def _long_form(to: Connection, chance: random.Random) -> tuple[int, bytes]:
    reader, writer = await to.opened()
    writer.write(_form_head(chance.choice(["/ui/sign-in", "/ui/theme"]), len(_form())) + _form())
    async with asyncio.timeout(20):
        found = await _answer(reader)
    to.close()
    return found


async def _trickled_form(to: Connection, chance: random.Random) -> str:
    reader, writer = await to.opened()
    writer.write(_form_head("/ui/sign-in", 9000) + b"key=")
    for _ in range(chance.randrange(5, 15)):
        writer.write(b"a" * 600)
        await writer.drain()
        await asyncio.sleep(1)
        if reader.at_eof():
            break
    to.close()
    return "closed"


async def _wrong_key(to: Connection, chance: random.Random) -> tuple[int, bytes]:
    reader, writer = await to.opened()
    key = f"ev_{chance.randrange(10**11, 10**12)}_x"
    writer.write(
        f"GET /v1/records HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    )
    async with asyncio.timeout(20):
        return await _answer(reader)


async def _documentation(to: Connection, chance: random.Random) -> tuple[int, bytes]:
    path = chance.choice(["/openapi.json", "/docs", "/ui/sign-in"])
    reader, writer = await to.opened()
    writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    async with asyncio.timeout(20):
        return await _answer(reader)


# of what is held for them
async def _endless_body(to: Connection, chance: random.Random) -> str:
    """A body in chunks, that stops before its end."""
    reader, writer = await to.opened()
    path = chance.choice(["/v1/records", "/v1/search", "/v1/records/batch"])
    media = "x-ndjson" if path.endswith("batch") else "json"
    writer.write(to.head("POST", path, f"application/{media}", "Transfer-Encoding: chunked"))
    for _ in range(chance.randrange(1, 150)):
        writer.write(b"10000\r\n" + b" " * 65_536 + b"\r\n")
        await writer.drain()
    with suppress(TimeoutError):
        async with asyncio.timeout(5):
            await reader.read(1)
    to.close()
    return "closed"


async def _slow_reader(to: Connection, chance: random.Random) -> str:
    """Large answers, one behind the other, of which little is read."""
    reader, writer = await to.opened()
    asked = to.head("GET", "/v1/records?limit=1000", "application/json", "Content-Length: 0")
    writer.write(asked * chance.randrange(1, 5))
    for _ in range(8):
        if not await reader.read(600):
            break
        await asyncio.sleep(1)
    to.close()
    return "closed"


if __name__ == "__main__":
    _port, _reader, _writer, _seconds, _seed = sys.argv[1:]
    os.nice(19)  # it stands for another machine: the service's processor is not its own
    print(
        json.dumps(asyncio.run(attack(int(_port), _reader, _writer, float(_seconds), int(_seed))))
    )
