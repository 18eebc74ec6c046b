"""`conn=` of a store for asyncio on SQLite: aiosqlite, SQLAlchemy over it, and synchronous drivers."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)

from aio.conftest import Run
from evervec import AsyncEvervec, InvalidArgument, InvalidRecord
from support.world import KIND, World, assert_in_step, work


@asynccontextmanager
async def with_sqlite3(path: Path) -> AsyncIterator[Any]:
    conn = sqlite3.connect(path, check_same_thread=False)
    yield Awaited(conn)
    conn.close()


class Awaited:
    """A synchronous connection whose ends are awaited, so that one test is for all."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self.conn = conn

    async def commit(self) -> None:
        self.conn.commit()

    async def rollback(self) -> None:
        self.conn.rollback()


@asynccontextmanager
async def with_aiosqlite(path: Path) -> AsyncIterator[Any]:
    async with aiosqlite.connect(path) as conn:
        yield conn


@asynccontextmanager
async def with_session(path: Path) -> AsyncIterator[Any]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with AsyncSession(engine) as session:
        yield session
    await engine.dispose()


@asynccontextmanager
async def with_scoped_session(path: Path) -> AsyncIterator[Any]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    session = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
    yield session
    await session.remove()
    await engine.dispose()


CALLERS = {
    "sqlite3": with_sqlite3,
    "aiosqlite": with_aiosqlite,
    "session": with_session,
    "scoped session": with_scoped_session,
}


@pytest.fixture(params=CALLERS)
def connect(request: pytest.FixtureRequest) -> Callable[[Path], AbstractAsyncContextManager[Any]]:
    return CALLERS[request.param]


def test_records_are_part_of_the_callers_transaction(
    run: Run,
    file_world: World,
    connect: Callable[[Path], AbstractAsyncContextManager[Any]],
) -> None:
    async def test(ev: AsyncEvervec) -> None:
        async with connect(Path(ev.sync.store.url.removeprefix("sqlite:///"))) as caller:
            conn = getattr(caller, "conn", caller)
            await ev.add(KIND, "alpha", id="1", conn=conn)
            await ev.add(KIND, "beta", id="1", conn=conn)
            assert await ev.get(KIND, "1") is None
            await caller.commit()
            assert await ev.get(KIND, "1") is not None
            await ev.delete(KIND, "1", conn=conn)
            with pytest.raises(InvalidRecord):
                await ev.add(KIND, "", id="2", conn=conn)
            await caller.rollback()
            records = ({"id": n, "text": f"text {n}"} for n in range(5, 9))
            added = [ticket.id async for ticket in ev.add_many(KIND, records, conn=conn)]
            assert added == ["5", "6", "7", "8"]
            await caller.commit()
            if isinstance(conn, async_scoped_session):
                conn = conn()  # the tasks below would have others
            for steps in range(6):
                add = asyncio.create_task(ev.add(KIND, "text", id=f"c{steps}", conn=conn))
                for _ in range(steps):
                    await asyncio.sleep(0)
                add.cancel()
                with suppress(asyncio.CancelledError):
                    await add
                await caller.rollback()
            await ev.add(KIND, "text", id="free")

    run(test)
    work(file_world.ev)
    texts = {"1": "beta", "free": "text"} | {str(n): f"text {n}" for n in range(5, 9)}
    assert_in_step(file_world.ev, texts)


def test_what_cannot_be_used_is_refused_with_the_way_out(run: Run, tmp_path: Path) -> None:
    async def test(ev: AsyncEvervec) -> None:
        with pytest.raises(InvalidArgument, match="not open"):
            await ev.add(KIND, "text", conn=aiosqlite.connect(tmp_path / "a.db"))
        engine = create_async_engine("sqlite+aiosqlite://")
        async with AsyncSession(engine) as session:
            with pytest.raises(InvalidArgument, match=r"evervec\.aopen"):
                ev.sync.add(KIND, "text", conn=session)
        await engine.dispose()
        with pytest.raises(InvalidArgument, match=r"sqlite3\.Connection.*builtins\.object"):
            await ev.add(KIND, "text", conn=object())

    run(test)
