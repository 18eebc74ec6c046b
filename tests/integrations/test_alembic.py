"""Alembic's operations attach tables within the transaction of a migration."""

import io
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata, produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine, MetaData, create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import evervec
import evervec.integrations.alembic  # registers the operations
from evervec import Evervec, InvalidArgument
from evervec.integrations.sqlalchemy import indexed
from support.postgres import DATABASES


class Database:
    """An application's database, without a store at first."""

    def __init__(self, engine: str, folder: Path) -> None:
        self.is_file = engine == "sqlite"
        self.store = str(folder / "app.db") if self.is_file else DATABASES.create()
        driver = "sqlite:///" + self.store
        if not self.is_file:
            driver = self.store.replace("postgresql://", "postgresql+psycopg://")
        self.engine: Engine = create_engine(driver)
        self.execute("create table articles (id integer primary key, title text, body text)")
        self.execute("insert into articles values (1, 'Tea', 'hills'), (2, 'Coffee', 'shade')")

    def execute(self, statement: str) -> None:
        with self.engine.begin() as conn:
            conn.execute(text(statement))

    @contextmanager
    def migration(self) -> Iterator[Any]:
        """As Alembic runs one: with its own transaction."""
        with self.engine.connect() as conn:
            context = MigrationContext.configure(conn)
            with context.begin_transaction(), context.begin_transaction(_per_migration=True):
                yield Operations(context)

    def opened(self) -> Evervec:
        return evervec.open(self.store, embedder="hashing")


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    made = Database(request.param, tmp_path)
    yield made
    made.engine.dispose()


def texts(ev: Evervec, kind: str = "articles") -> dict[str, str]:
    ev.process_all()
    assert ev.verify().complete
    return {record.id: record.text for record in ev.records(kind)}


def test_a_migration_attaches_and_another_detaches(database: Database) -> None:
    with database.migration() as op:
        op.attach_evervec("articles", text="{title}: {body}")
        op.execute("insert into articles values (3, 'Salt', 'sea')")
    with database.opened() as ev:
        assert texts(ev) == {"1": "Tea: hills", "2": "Coffee: shade", "3": "Salt: sea"}
    with database.migration() as op:
        assert op.detach_evervec("articles", keep_records=True) == 0
    with database.migration() as op:
        op.attach_evervec("articles", text="title")
        assert op.detach_evervec("articles") == 3
    database.execute("insert into articles values (4, 'unseen', 'x')")
    with database.opened() as ev:
        assert texts(ev) == {}
        assert ev.tables() == []


def test_a_migration_that_fails_attaches_nothing(database: Database) -> None:
    with pytest.raises(RuntimeError), database.migration() as op:  # noqa: PT012
        op.execute("insert into articles values (3, 'undone', 'x')")
        op.attach_evervec("articles", text="title")
        raise RuntimeError
    with database.engine.connect() as conn:
        assert conn.execute(text("select count(*) from articles")).scalar() == 2
    with database.opened() as ev:
        assert ev.tables() == []
    with pytest.raises(InvalidArgument, match="no column 'boody'"), database.migration() as op:
        op.attach_evervec("articles", text="boody")


def test_a_store_that_is_at_work_sees_the_attachment(database: Database) -> None:
    with database.opened() as ev:
        ev.add("note", "of another kind", id="1", wait=None)
        ev.process_all()
        with database.migration() as op:
            op.attach_evervec("articles", text="title", kind="article")
        assert set(texts(ev, "article")) == {"1", "2"}
        with (
            pytest.raises(InvalidArgument, match="not rows of a table"),
            database.migration() as op,
        ):
            op.attach_evervec("articles", text="title", kind="note")
        with database.migration() as op:
            op.attach_evervec("articles", text="title", kind="note", replace=True)
        assert texts(ev, "note") == {"1": "Tea", "2": "Coffee"}


def test_batch_mode_rebuilds_the_table_and_it_is_attached_again(database: Database) -> None:
    with database.migration() as op:
        op.attach_evervec("articles", text="title")
    with database.opened() as ev:
        texts(ev)
        with database.migration() as op:
            with op.batch_alter_table("articles", recreate="always") as batch:
                batch.alter_column("title", nullable=False)
            op.execute("update articles set title = 'Green tea' where id = 1")
        assert ev.tables()[0].state == "broken"
        with database.migration() as op:
            (again,) = op.attach_evervec_again()
            assert again.text == ("title",)
        assert texts(ev) == {"1": "Green tea", "2": "Coffee"}
        with database.migration() as op:
            op.rename_table("articles", "papers")
            op.attach_evervec_again("articles")
        assert [(t.table, t.state) for t in ev.tables()] == [("papers", "backfilling")]
        assert len(texts(ev)) == 2


def test_offline_mode_says_which_command_to_run(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    written = io.StringIO()
    dialect = "sqlite" if database.is_file else "postgresql"
    op: Any = Operations(
        MigrationContext.configure(
            dialect_name=dialect, opts={"as_sql": True, "output_buffer": written}
        )
    )
    assert op.attach_evervec("articles", text="{title}:\n{body}'s", metadata=["a b"]) is None
    op.attach_evervec_again("articles", to="papers")
    assert op.detach_evervec("articles") is None
    lines = written.getvalue().split("\n")
    assert all(line.startswith("--") for line in lines if line), "nothing else is in the script"
    (line,) = (line for line in lines if "--metadata" in line)
    command = line.partition("evervec --store URL ")[2]
    read = subprocess.run(
        ["bash", "-c", f"printf '%s|' {command}"], capture_output=True, text=True, check=True
    )
    assert read.stdout.split("|")[:-1] == [
        "attach", "articles", "--kind", "articles", "--id", "id",
        "--text", "{title}:\n{body}'s", "--metadata", "a b",
    ]  # fmt: skip
    assert any("attach articles --again --to papers" in line for line in lines)
    assert any("detach articles" in line for line in lines)
    assert "offline mode cannot attach" in caplog.text


def model(**given: Any) -> MetaData:
    class Base(DeclarativeBase):
        pass

    class Article(Base):
        __tablename__ = "articles"

        id: Mapped[int] = mapped_column(primary_key=True)
        title: Mapped[str | None]
        body: Mapped[str | None]

    if given:
        indexed(**given)(Article)
    return Base.metadata


def generated(database: Database, metadata: MetaData) -> tuple[str, str]:
    """The bodies of upgrade and downgrade that autogenerate writes."""
    with database.engine.connect() as conn:
        context = MigrationContext.configure(conn, opts={"include_schemas": True})
        script = produce_migrations(context, metadata)
    assert script.upgrade_ops is not None
    assert script.downgrade_ops is not None
    return render_python_code(script.upgrade_ops), render_python_code(script.downgrade_ops)


def apply(database: Database, body: str) -> None:
    """Run the lines about attached tables."""
    lines = [line.strip() for line in body.splitlines() if "evervec" in line]
    with database.migration() as op:
        exec("\n".join(lines), {"op": op})


@pytest.mark.filterwarnings("ignore:Did not recognize type 'vector'")  # with all schemas
def test_autogenerate_compares_models_with_attached_tables(database: Database) -> None:
    assert "evervec" not in "".join(generated(database, model()))
    first = model(text=["title", "body"], kind="article")
    up, down = generated(database, first)
    assert "op.attach_evervec('articles', text=['title', 'body'], kind='article')" in up
    assert "op.detach_evervec('article')" in down
    apply(database, up)
    with database.opened() as ev:
        assert len(texts(ev, "article")) == 2
    again, _ = generated(database, first)
    assert "evervec" not in again, "nor are the tables of the store dropped"
    with database.engine.connect() as conn:
        differences = compare_metadata(MigrationContext.configure(conn), first)
    assert not any("evervec" in str(one) for one in differences)

    changed = model(text="{title}", kind="article", metadata=["body"])
    up, down = generated(database, changed)
    assert "text='{title}', kind='article', metadata=['body']" in up
    assert "op.attach_evervec('articles', text=['title', 'body'], kind='article')" in down
    apply(database, up)
    with database.opened() as ev:
        assert texts(ev, "article") == {"1": "Tea", "2": "Coffee"}
    apply(database, down)

    moved = model(text="title")
    up, down = generated(database, moved)
    assert up.index("op.detach_evervec('article')") < up.index("op.attach_evervec('articles'")
    apply(database, up)
    with database.opened() as ev:
        assert [t.kind for t in ev.tables()] == ["articles"]
    assert "evervec" not in generated(database, model())[0], "attached by hand, for all it knows"
    apply(database, down)
    with database.opened() as ev:
        assert [t.kind for t in ev.tables()] == ["article"]


def test_a_declaration_of_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="articles has no column 'boody'; it has id, title"):
        model(text="boody")


@pytest.mark.filterwarnings("ignore:Did not recognize type 'vector'")
def test_a_dropped_table_is_detached_before(database: Database) -> None:
    apply(database, "op.attach_evervec('articles', text='title')")
    up, down = generated(database, MetaData())
    assert up.index("op.detach_evervec('articles')") < up.index("op.drop_table('articles')")
    assert down.index("op.create_table('articles'") < down.index("op.attach_evervec('articles'")
