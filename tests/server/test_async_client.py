"""What the asynchronous client does beyond what all ways do."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from evervec import (
    AccessDenied,
    AsyncClient,
    Evervec,
    InvalidArgument,
    InvalidRecord,
    RateLimited,
    StoreError,
)
from evervec.errors import StoreClosed
from support.flaky import Flaky, failing
from support.service import Served


@pytest.fixture
def flaky() -> Iterator[type[Flaky]]:
    with failing() as service:
        yield service


def test_many_tasks_share_a_client(served: Served, ev: Evervec) -> None:
    async def main() -> None:
        async with AsyncClient(served.url, served.key()) as client:
            adds = (client.add("note", f"text {n}", id=n, wait=30) for n in range(50))
            tickets = await asyncio.gather(*adds)
            assert [ticket.id for ticket in tickets] == [str(n) for n in range(50)]
            found = await asyncio.gather(*(client.get("note", n) for n in range(50)))
            assert [record and record.text for record in found] == [f"text {n}" for n in range(50)]

    asyncio.run(main())
    assert ev.verify().complete


def test_streams_are_iterated(served: Served) -> None:
    async def lines() -> AsyncIterator[dict[str, Any]]:
        for n in range(2500):
            if n % 1000 == 0:
                await asyncio.sleep(0)
            yield {"id": f"{n:04}", "text": f"text {n}"}

    async def main() -> None:
        async with AsyncClient(served.url, served.key()) as client:
            ids = [ticket.id async for ticket in client.add_many("note", lines())]
            assert ids == [f"{n:04}" for n in range(2500)]
            assert [record.id async for record in client.records("note", limit=700)] == ids
            assert [record.id for record in await client.records(limit=1500)] == ids[:1500]
            assert [record async for record in client.records("none")] == []

    asyncio.run(main())


def test_a_record_that_cannot_be_sent_is_named_after_those_before_it(served: Served) -> None:
    async def main() -> None:
        async with AsyncClient(served.url, served.key()) as client:
            tickets = client.add_many("note", ["one", "two", {"id": 3}, "four"])
            assert (await anext(tickets)).accepted
            assert (await anext(tickets)).accepted
            with pytest.raises(InvalidRecord, match=r"position 2: text: is missing") as raised:
                await anext(tickets)
            assert raised.value.position == 2
            assert await client.count() == 2

    asyncio.run(main())


def test_tickets_that_nobody_reads_are_warned_of(served: Served) -> None:
    async def main() -> None:
        async with AsyncClient(served.url, served.key()) as client:
            with pytest.warns(RuntimeWarning, match="never iterated"):
                client.add_many("note", ["text"])

    asyncio.run(main())


def test_what_may_pass_is_tried_again_under_one_name(flaky: type[Flaky]) -> None:
    async def main() -> None:
        flaky.answers += [(0, b""), (503, b"busy"), (429, b"{}"), (200, b'{"retried": 3}')]
        async with AsyncClient(flaky.url) as client:
            assert await client.queue.retry_failed() == 3
        assert len(set(flaky.keys)) == 1
        assert (len(flaky.keys), None in flaky.keys) == (4, False)
        flaky.answers[:] = [(429, b'{"detail": "slow down"}')]
        async with AsyncClient(flaky.url, retries=1) as client:
            with pytest.raises(RateLimited, match="slow"):
                await client.queue.retry_failed()

    asyncio.run(main())


def test_a_wrong_key_and_a_missing_service_are_told_plainly(served: Served) -> None:
    served.key()

    async def main() -> None:
        async with AsyncClient(served.url, "ev_nonsense") as client:
            with pytest.raises(AccessDenied, match="key"):
                await client.records()
        async with AsyncClient("http://127.0.0.1:9", retries=0) as client:
            with pytest.raises(StoreError, match="is unreachable"):
                await client.records()

    asyncio.run(main())
    assert "secret" not in repr(AsyncClient(served.url, "secret"))
    for url, key in (("http://[", "a"), ("ftp://x", "a"), ("http://x", "se\ncret")):
        with pytest.raises(InvalidArgument) as raised:
            AsyncClient(url, key)
        assert "se" not in str(raised.value).replace("service", "")


def test_a_client_belongs_to_one_loop(served: Served) -> None:
    client = AsyncClient(served.url, served.key())

    async def close_after(do: Callable[[], Awaitable[object]]) -> None:
        await do()
        await client.close()
        await client.close()
        with pytest.raises(StoreClosed, match="closed"):
            await client.count()

    with asyncio.Runner() as one, asyncio.Runner() as other:
        one.run(client.usage())
        with pytest.raises(InvalidArgument, match="another event loop"):
            other.run(client.usage())
        one.run(close_after(client.usage))


class Echo:
    """A service that answers each count with the number in its filter, in pieces."""

    def __init__(self) -> None:
        self.answered = 0

    async def __call__(self, read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
        try:
            while head := await read.readuntil(b"\r\n\r\n"):
                size = re.search(rb"content-length: (\d+)", head.lower())
                assert size is not None
                body = json.loads(await read.readexactly(int(size[1])))
                answer = json.dumps({"count": body["filter"]["n"]}).encode()
                head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer)
                for part in (head[:9], head[9:], answer[:4], answer[4:]):
                    write.write(part)
                    for _ in range(4):
                        await asyncio.sleep(0)
                self.answered += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            write.close()


def test_a_cancelled_request_leaves_no_answer_to_another() -> None:
    """At every step of the loop between sending and reading."""

    async def main() -> None:
        echo = Echo()
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        cancelled = 0
        async with AsyncClient(url, retries=0) as client:
            for steps in range(60):
                task = asyncio.create_task(client.count(filter={"n": 1000 + steps}))
                for _ in range(steps):
                    await asyncio.sleep(0)
                cancelled += task.cancel()
                asked = [client.count(filter={"n": n}) for n in range(3)]
                assert await asyncio.gather(*asked) == [0, 1, 2]
                await asyncio.gather(task, return_exceptions=True)
                assert task.cancelled() or task.result() == 1000 + steps
        assert cancelled > 5
        assert echo.answered >= 180
        server.close()

    asyncio.run(main())


def test_requests_go_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    async def proxy(read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
        seen.append(await read.readuntil(b"\r\n\r\n"))
        write.write(b'HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{"count": 7}')
        await write.drain()
        write.close()

    async def main() -> None:
        server = await asyncio.start_server(proxy, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("http_proxy", f"http://user:pass@127.0.0.1:{port}")
        monkeypatch.setenv("no_proxy", "")
        async with AsyncClient("http://service.invalid/at", "key", retries=0) as client:
            assert await client.count() == 7
        server.close()

    asyncio.run(main())
    (head,) = seen
    assert head.startswith(b"POST http://service.invalid/at/v1/records/count HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNz\r\n" in head
    assert b"Authorization: Bearer key\r\n" in head


def test_keys_tokens_and_the_audit_log_are_awaited(served: Served) -> None:
    async def main() -> None:
        async with AsyncClient(served.url, served.key(role="admin")) as admin:
            made = await admin.keys.create("acme", expires_in=60)
            assert [key.id for key in await admin.keys.list("acme")] == [made.info.id]
            newer = await admin.keys.rotate(made.info.id)
            async with AsyncClient(served.url, newer.key) as client:
                token = await client.tokens.create(expires_in=60)
                async with AsyncClient(served.url, token.token) as limited:
                    assert await limited.count() == 0
            await admin.tokens.revoke(token.id)
            await admin.keys.revoke(newer.info.id)
            assert [entry.action for entry in await admin.audit.list()] == [
                "key.revoke", "key.revoke", "token.create", "key.rotate", "key.create"
            ]  # fmt: skip

    asyncio.run(main())
