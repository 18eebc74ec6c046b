"""`conn=` of a store for asyncio on PostgreSQL: psycopg, asyncpg, and SQLAlchemy over both."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from evervec import AsyncEvervec, EvervecError, InvalidArgument, InvalidRecord, StoreError
from evervec.aio.facade import AsyncOpener
from support.world import KIND, World, assert_in_step, work


class Caller:
    """A connection of a driver, in a transaction, and what the caller does with it."""

    def __init__(
        self,
        conn: Any,
        execute: Callable[[str], Coroutine[Any, Any, Any]],
        commit: Callable[[], Coroutine[Any, Any, None]],
        rollback: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self.conn, self.execute, self.commit, self.rollback = conn, execute, commit, rollback


@asynccontextmanager
async def with_psycopg(url: str) -> AsyncIterator[Caller]:
    conn = await psycopg.AsyncConnection.connect(url)
    try:
        yield Caller(conn, lambda sql: conn.execute(sql.encode()), conn.commit, conn.rollback)
    finally:
        await conn.close()


@asynccontextmanager
async def with_asyncpg(url: str) -> AsyncIterator[Caller]:
    conn = await asyncpg.connect(url)
    began = conn.transaction()
    await began.start()

    async def commit() -> None:
        nonlocal began
        await began.commit()
        began = conn.transaction()
        await began.start()

    async def rollback() -> None:
        nonlocal began
        await began.rollback()
        began = conn.transaction()
        await began.start()

    try:
        yield Caller(conn, conn.execute, commit, rollback)
    finally:
        await conn.close()


@asynccontextmanager
async def with_asyncpg_pool(url: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(url, min_size=0, max_size=1) as pool, pool.acquire() as conn:
        await conn.execute("begin")

        async def commit() -> None:
            await conn.execute("commit; begin")

        async def rollback() -> None:
            await conn.execute("rollback; begin")

        yield Caller(conn, conn.execute, commit, rollback)


def with_session(driver: str) -> Callable[[str], AbstractAsyncContextManager[Caller]]:
    @asynccontextmanager
    async def connected(url: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(url.replace("postgresql://", f"postgresql+{driver}://"))
        async with AsyncSession(engine) as session:
            yield Caller(
                session, lambda sql: session.execute(text(sql)), session.commit, session.rollback
            )
        await engine.dispose()

    return connected


def with_connection(driver: str) -> Callable[[str], AbstractAsyncContextManager[Caller]]:
    @asynccontextmanager
    async def connected(url: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(url.replace("postgresql://", f"postgresql+{driver}://"))
        async with engine.connect() as conn:
            yield Caller(conn, lambda sql: conn.execute(text(sql)), conn.commit, conn.rollback)
        await engine.dispose()

    return connected


CALLERS = {
    "psycopg": with_psycopg,
    "asyncpg": with_asyncpg,
    "asyncpg pool": with_asyncpg_pool,
    "session over psycopg": with_session("psycopg"),
    "session over asyncpg": with_session("asyncpg"),
    "connection over psycopg": with_connection("psycopg"),
    "connection over asyncpg": with_connection("asyncpg"),
}
Connect = Callable[[str], AbstractAsyncContextManager[Caller]]


@pytest.fixture(params=CALLERS)
def connect(request: pytest.FixtureRequest) -> Connect:
    return CALLERS[request.param]


@contextmanager
def refusing(world: World, id: str) -> Iterator[None]:
    """The database refuses a record."""
    table = "alter table evervec.records"
    with world.connect() as conn:
        conn.execute(f"{table} add constraint mine check (id <> '{id}')")
    try:
        yield
    finally:
        with world.connect() as conn:
            conn.execute(f"{table} drop constraint mine")


def run(world: World, test: Callable[[AsyncEvervec], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with AsyncOpener(world.open) as ev, asyncio.timeout(60):
            await test(ev)

    asyncio.run(main())


def test_records_are_part_of_the_callers_transaction(
    world: World, url: str, connect: Connect
) -> None:
    async def test(ev: AsyncEvervec) -> None:
        async with connect(url) as caller:
            await caller.execute("create table mine (id int)")
            await caller.commit()
            await caller.execute("insert into mine values (1)")
            ticket = await ev.add(KIND, "alpha", id="1", metadata={"a": [1]}, conn=caller.conn)
            assert ticket.is_new
            await ev.add(KIND, "beta", id="1", conn=caller.conn)
            assert await ev.get(KIND, "1") is None
            await caller.commit()
            assert (await ev.get(KIND, "1")).text == "beta"  # type: ignore[union-attr]
            await ev.add(KIND, "gamma", id="2", conn=caller.conn)
            await ev.delete(KIND, "1", conn=caller.conn)
            await caller.rollback()
            records = ({"id": n, "text": f"text {n}"} for n in range(10, 15))
            added = [ticket.id async for ticket in ev.add_many(KIND, records, conn=caller.conn)]
            assert added == ["10", "11", "12", "13", "14"]
            await caller.commit()
            await ev.delete(KIND, "14", conn=caller.conn)
            await caller.commit()
            await ev.add(KIND, "delta", id="3", conn=caller.conn)  # and never commits

    run(world, test)
    work(world.ev)
    wanted = {"1": "beta"} | {str(n): f"text {n}" for n in range(10, 14)}
    assert_in_step(world.ev, wanted)
    with world.connect() as conn:
        assert conn.execute("select count(*) from mine").fetchone() == (1,)


def test_a_refused_record_leaves_the_transaction_usable(
    world: World, url: str, connect: Connect
) -> None:
    async def test(ev: AsyncEvervec) -> None:
        async with connect(url) as caller:
            await ev.add(KIND, "alpha", id="1", conn=caller.conn)
            with pytest.raises(InvalidRecord):
                await ev.add(KIND, "", id="2", conn=caller.conn)
            with pytest.raises(EvervecError, match="mine"):
                await ev.add(KIND, "x", id="refused", conn=caller.conn)
            await ev.add(KIND, "beta", id="3", conn=caller.conn)
            await caller.commit()
            with suppress(Exception):
                await caller.execute("select 1 / 0")
            with pytest.raises(StoreError, match="aborted"):
                await ev.add(KIND, "gamma", id="4", conn=caller.conn)
            await caller.rollback()
            await ev.add(KIND, "gamma", id="4", conn=caller.conn)
            await caller.commit()

    with refusing(world, "refused"):
        run(world, test)
    assert [record.id for record in world.ev.records()] == ["1", "3", "4"]


def test_a_cancelled_call_ends_before_its_task(world: World, url: str, connect: Connect) -> None:
    """At every step of the loop: afterwards the connection is the caller's alone."""

    async def test(ev: AsyncEvervec) -> None:
        async with connect(url) as caller:
            for steps in range(12):
                add = asyncio.create_task(ev.add(KIND, "text", id=steps, conn=caller.conn))
                for _ in range(steps):
                    await asyncio.sleep(0)
                add.cancel()
                with suppress(asyncio.CancelledError):
                    await add
                await caller.execute("select 1")
                await caller.commit()

    run(world, test)
    work(world.ev)
    assert world.ev.verify().complete
    assert world.ev.queue.stats().pending == 0


def test_more_transactions_than_threads_wait_for_each_other(world: World, url: str) -> None:
    """All threads of the pool may wait for a lock: the transaction that holds it goes on."""

    async def test(ev: AsyncEvervec) -> None:
        async with with_psycopg(url) as first:
            await ev.add(KIND, "first", id="1", conn=first.conn)
            others = [asyncio.create_task(ev.add(KIND, f"{n}", id="1")) for n in range(40)]
            others += [asyncio.create_task(ev.delete(KIND, "1")) for _ in range(40)]
            await asyncio.sleep(0.05)
            await ev.add(KIND, "again", id="1", conn=first.conn)
            await first.commit()
            await asyncio.gather(*others)

    run(world, test)
    work(world.ev)
    assert world.ev.verify().complete


def test_without_a_transaction_each_call_commits(world: World, url: str) -> None:
    async def test(ev: AsyncEvervec) -> None:
        conn = await psycopg.AsyncConnection.connect(url, autocommit=True)
        async with conn:
            await ev.add(KIND, "alpha", id="1", conn=conn)
            assert await ev.get(KIND, "1") is not None
            with pytest.raises(EvervecError, match="mine"):
                await ev.add(KIND, "x", id="refused", conn=conn)
            assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        other = await asyncpg.connect(url)
        await ev.add(KIND, "beta", id="2", conn=other)
        assert await ev.get(KIND, "2") is not None
        with pytest.raises(EvervecError, match="mine"):
            await ev.add(KIND, "x", id="refused", conn=other)
        assert not other.is_in_transaction()
        await other.close()
        with pytest.raises(StoreError, match="closed"):
            await ev.add(KIND, "gamma", id="3", conn=other)

    with refusing(world, "refused"):
        run(world, test)


def test_what_cannot_be_used_is_refused_with_the_way_out(world: World, url: str) -> None:
    async def test(ev: AsyncEvervec) -> None:
        import aiosqlite

        async with aiosqlite.connect(":memory:") as conn:
            with pytest.raises(InvalidArgument, match=r"sqlite3\.Connection"):
                await ev.add(KIND, "alpha", id="1", conn=conn)
        for conn in (object(), "postgresql://"):
            with pytest.raises(InvalidArgument, match=r"psycopg\.Connection"):
                await ev.add(KIND, "alpha", id="1", conn=conn)
        async with with_psycopg(url) as caller, with_session("asyncpg")(url) as session:
            for given in (caller.conn, session.conn):
                with pytest.raises(InvalidArgument, match=r"evervec\.aopen"):
                    world.ev.add(KIND, "alpha", id="1", conn=given)
            with pytest.raises(InvalidArgument, match="wait"):
                await ev.add(KIND, "alpha", id="1", wait=1, conn=caller.conn)

    run(world, test)


def test_what_is_no_connection_is_refused(world: World, url: str) -> None:
    async def test(ev: AsyncEvervec) -> None:
        async with asyncpg.create_pool(url, min_size=0, max_size=1) as pool:
            async with pool.acquire() as conn:
                pass
            for given, message in ((pool, r"not asyncpg\.pool\.Pool"), (conn, "given back")):
                with pytest.raises(InvalidArgument, match=message):
                    await ev.add(KIND, "text", conn=given)
        engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
        with pytest.raises(InvalidArgument, match="not a connection or session"):
            await ev.add(KIND, "text", conn=engine)
        holder, other = await asyncpg.connect(url), await asyncpg.connect(url)
        await holder.execute("select pg_advisory_lock(1)")
        busy = asyncio.create_task(other.execute("select pg_advisory_lock(1)"))
        await asyncio.sleep(0)
        with pytest.raises(StoreError, match=r"error in the store .* another operation"):
            await ev.add(KIND, "text", conn=other)
        await holder.close()
        await busy
        await other.close()

    run(world, test)
