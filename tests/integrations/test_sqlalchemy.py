"""Sessions of SQLAlchemy are followed in their own transactions, and what passes by is warned of."""

import asyncio
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    Engine,
    ForeignKey,
    create_engine,
    delete,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

import evervec
from evervec import Evervec, InvalidArgument
from evervec.integrations.sqlalchemy import Followed, UnseenStatement, follow
from support.postgres import DATABASES


class App:
    """An application with models of its own, because events stay on a model."""

    def __init__(self, url: str, engine: str) -> None:
        class Base(DeclarativeBase):
            pass

        class Article(Base):
            __tablename__ = "articles"

            id: Mapped[int] = mapped_column(primary_key=True)
            title: Mapped[str] = mapped_column(unique=True)
            body: Mapped[str | None]
            team: Mapped[str | None]

        class Remark(Base):
            __tablename__ = "remarks"

            id: Mapped[int] = mapped_column(primary_key=True)
            article: Mapped[int | None] = mapped_column(ForeignKey("articles.id"))

        self.url, self.base, self.article = url, Base, Article
        driver = {"sqlite": f"sqlite:///{url}"}.get(
            engine, url.replace("postgresql://", "postgresql+psycopg://")
        )
        self.engine: Engine = create_engine(driver)
        Base.metadata.create_all(self.engine)
        self.sessions = sessionmaker(self.engine)


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    url = str(tmp_path / "app.db") if request.param == "sqlite" else DATABASES.create()
    app = App(url, request.param)
    yield app
    app.engine.dispose()


@pytest.fixture
def ev(app: App) -> Iterator[Evervec]:
    with evervec.open(app.url, embedder="hashing") as ev:
        yield ev


@pytest.fixture
def followed(app: App, ev: Evervec) -> Followed:
    return follow(app.sessions, app.article, ev, text=["title", "body"], metadata=["team"])


def texts(ev: Evervec) -> dict[str, str]:
    ev.process_all()
    assert ev.verify().complete
    return {record.id: record.text for record in ev.records("articles")}


def test_what_is_flushed_is_saved_with_the_commit(
    app: App, ev: Evervec, followed: Followed
) -> None:
    with app.sessions() as session:
        session.add_all([app.article(title="Tea", body="hills"), app.article(title="Coffee")])
        session.flush()
        assert ev.count("articles") == 0
        session.commit()
        assert texts(ev) == {"1": "Tea\n\nhills", "2": "Coffee"}
        one = session.get_one(app.article, 1)
        one.body = "valleys"
        session.delete(session.get_one(app.article, 2))
        session.commit()
        assert texts(ev) == {"1": "Tea\n\nvalleys"}
        one.id = 7  # it was expired by the commit
        session.commit()
        assert texts(ev) == {"7": "Tea\n\nvalleys"}
        one.title = ""
        one.body = None
        session.commit()
        assert texts(ev) == {}


def test_what_is_rolled_back_is_not_saved(app: App, ev: Evervec, followed: Followed) -> None:
    with app.sessions() as session:
        session.add(app.article(title="kept"))
        session.flush()
        with session.begin_nested() as savepoint:
            session.add(app.article(title="undone"))
            session.flush()
            savepoint.rollback()
        with pytest.raises(IntegrityError), session.begin_nested():
            session.add(app.article(title="kept"))
        with session.begin_nested():
            session.add(app.article(title="kept too"))
        session.commit()
        session.add(app.article(title="never"))
        session.flush()
        session.rollback()
    assert sorted(texts(ev).values()) == ["kept", "kept too"]


def test_an_error_of_the_store_fails_the_flush(app: App, ev: Evervec, followed: Followed) -> None:
    with app.sessions() as session:
        session.add(app.article(title="good"))
        session.commit()
    strict = follow(app.sessions, app.article, ev, kind="other", text="title", weight="team")
    with app.sessions() as session:
        session.add(app.article(title="bad", team="not a number"))
        with pytest.raises(ValueError, match="not a number"):
            session.commit()
    assert strict.kind == "other"
    assert len(texts(ev)) == 1


def test_a_row_that_changes_its_tenant_leaves_the_old_one(app: App, ev: Evervec) -> None:
    follow(app.sessions, app.article, ev, text="title", tenant="team")
    with app.sessions() as session:
        session.add_all([app.article(title="one", team="red"), app.article(title="two")])
        session.commit()
        (one,) = session.scalars(select(app.article).where(app.article.title == "one"))
        session.expire(one)
        one.team = "blue"  # the old value was not loaded
        session.commit()
    assert [r.id for r in ev.records("articles")] == ["2"]
    assert ev.of("red").count("articles") == 0
    assert [r.id for r in ev.of("blue").records("articles")] == ["1"]
    with app.sessions() as session:
        session.delete(session.get_one(app.article, 1))
        session.commit()
    assert ev.of("blue").count("articles") == 0


def statements(app: App) -> dict[str, Any]:
    article = app.article
    return {
        "update of the ORM": lambda s: s.execute(update(article).values(body="x")),
        "delete of the ORM": lambda s: s.execute(delete(article)),
        "insert of the ORM": lambda s: s.execute(insert(article), [{"title": "a"}, {"title": "b"}]),
        "legacy query": lambda s: s.query(article).update({"body": "x"}),
        "bulk mappings": lambda s: s.bulk_insert_mappings(article, [{"title": "a"}]),
        "bulk objects": lambda s: s.bulk_save_objects([article(title="a")]),
        "Core in the session": lambda s: s.connection().execute(app.base.metadata.tables["articles"].insert().values(title="a")),
    }  # fmt: skip


def test_statements_that_are_no_flush_are_warned_of(
    app: App, ev: Evervec, followed: Followed
) -> None:
    for run in statements(app).values():
        with (
            app.sessions() as session,
            pytest.warns(
                UnseenStatement, match=r"^(insert|update|delete)\(\) changes .* outside a flush"
            ),
        ):
            run(session)
    with app.engine.begin() as conn, pytest.warns(UnseenStatement, match="attach the table"):
        conn.execute(app.base.metadata.tables["articles"].insert().values(title="a"))
    other = sessionmaker(app.engine)
    with other() as session:
        session.add(app.article(title="of a session that is not followed"))
        with pytest.warns(UnseenStatement, match=r"insert\(\) changes rows"):
            session.flush()
    with app.sessions() as session:
        session.add(one := app.article(title="one"))
        session.commit()
        one.title = one.title + ""  # a flush that finds nothing to write
        session.flush()
        with pytest.warns(UnseenStatement):
            session.bulk_insert_mappings(app.article, [{"title": "d"}])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with app.sessions() as session:
            session.execute(select(app.article))
            session.execute(app.base.metadata.tables["remarks"].insert().values(id=1))
            session.add(app.article(title="c"))
            session.commit()


def test_rows_that_no_flush_wrote_are_saved_by_hand(app: App, ev: Evervec) -> None:
    with app.engine.begin() as conn:
        conn.execute(text("insert into articles (id, title) values (1, 'one'), (2, 'two')"))
    followed = follow(app.sessions, app.article, ev, text=lambda a: f"about {a.title}", kind="a")
    with app.sessions() as session:
        for some in session.scalars(select(app.article)).partitions(1):
            followed.save(session, some)
        session.commit()
    assert {r.id: r.text for r in ev.records("a")} == {"1": "about one", "2": "about two"}


def test_two_sessions_at_once(app: App, ev: Evervec, followed: Followed) -> None:
    with app.sessions() as one, app.sessions() as two:
        one.add(app.article(title="one"))
        one.commit()
        two.add(app.article(title="two"))
        one.add(app.article(title="three"))
        two.flush()
        two.commit()
        one.commit()
    assert sorted(texts(ev).values()) == ["one", "three", "two"]


def test_what_cannot_be_followed_is_said(app: App, ev: Evervec) -> None:
    with pytest.raises(InvalidArgument, match="no column attribute 'boody'; it has id, title"):
        follow(app.sessions, app.article, ev, text="boody")
    with pytest.raises(InvalidArgument, match="async_sessionmaker"):
        follow(AsyncSession, app.article, ev, text="title")


@pytest.mark.parametrize("driver", ["aiosqlite", "asyncpg", "psycopg"])
def test_asynchronous_sessions_are_followed(driver: str, tmp_path: Path) -> None:
    is_file = driver == "aiosqlite"
    store = str(tmp_path / "app.db") if is_file else DATABASES.create()
    app = App(store, "sqlite" if is_file else "postgres")
    app.engine.dispose()
    url = f"sqlite+aiosqlite:///{store}" if is_file else store.replace("://", f"+{driver}://")

    async def run() -> None:
        engine = create_async_engine(url)
        sessions = async_sessionmaker(engine)
        async with evervec.aopen(store, embedder="hashing") as ev:
            follow(sessions, app.article, ev, text="title", tenant="team")
            async with sessions() as session:
                session.add_all([app.article(title="one"), app.article(title="two", team="red")])
                await session.commit()
                session.add(app.article(title="undone"))
                await session.flush()
                await session.rollback()
                one = await session.get_one(app.article, 1)
                one.title = "changed"
                await session.commit()
                await session.delete(await session.get_one(app.article, 2))
                await session.commit()
                with pytest.warns(UnseenStatement):
                    await session.execute(update(app.article).values(body="x"))
            await ev.process_all()
            assert [(r.id, r.text) for r in await ev.records("articles")] == [("1", "changed")]
            assert await ev.of("red").count("articles") == 0
            assert (await ev.verify()).complete
        await engine.dispose()

    asyncio.run(run())


def test_an_asynchronous_session_needs_an_asynchronous_store(tmp_path: Path) -> None:
    store = str(tmp_path / "app.db")
    app = App(store, "sqlite")
    app.engine.dispose()

    async def run(ev: Evervec) -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{store}")
        sessions = async_sessionmaker(engine)
        follow(sessions, app.article, ev, text="title")
        async with sessions() as session:
            session.add(app.article(title="one"))
            with pytest.raises(InvalidArgument, match=r"evervec\.aopen"):
                await session.commit()
        await engine.dispose()

    with evervec.open(store, embedder="hashing") as ev:
        asyncio.run(run(ev))
