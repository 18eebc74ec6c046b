"""The project in examples/alembic_notes: migrations run while workers are killed."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

import evervec
from evervec import Evervec
from support.command import run_module
from support.postgres import DATABASES
from support.processes import until

EXAMPLE = Path(__file__).parents[2] / "examples" / "alembic_notes"
NOTES = 200


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "notes.db") if request.param == "sqlite" else DATABASES.create()


class Project:
    """The example, as its README runs it."""

    def __init__(self, store: str, folder: Path) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("EVERVEC_")}
        self.environ = clean | {
            "EVERVEC_STORE": store, "EVERVEC_EMBEDDER": "hashing", "EVERVEC_LEASE_SECONDS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        self.folder = folder

    def notes(self, *args: str) -> str:
        done = subprocess.run(
            [sys.executable, str(EXAMPLE / "notes.py"), *args], cwd=self.folder, env=self.environ,
            timeout=60, check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def alembic(self, *args: str) -> str:
        return self._run("alembic", "-c", str(EXAMPLE / "alembic.ini"), *args)

    def evervec(self, *args: str) -> str:
        return self._run("evervec", *args)

    def _run(self, module: str, *args: str) -> str:
        done = run_module(
            module, *args, folder=self.folder, environ=self.environ, knows="alembic.config,psycopg"
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def worker(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "evervec", "worker"], cwd=self.folder, env=self.environ,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip


@pytest.fixture
def project(store: str, tmp_path: Path) -> Project:
    return Project(store, tmp_path)


@pytest.fixture
def ev(store: str, project: Project) -> Iterator[Evervec]:
    project.alembic("upgrade", "0001")
    with evervec.open(store, embedder="hashing") as ev:
        yield ev


def written(store: str, *statements: str) -> None:
    is_file = "://" not in store
    engine = create_engine(
        f"sqlite:///{store}" if is_file else store.replace("://", "+psycopg://"),
        connect_args={"timeout": 60} if is_file else {},
    )
    with engine.begin() as conn:
        for statement in statements:
            conn.execute(text(statement))
    engine.dispose()


def test_migrations_rebuild_the_table_while_workers_are_killed(
    store: str, project: Project, ev: Evervec
) -> None:
    rows = ", ".join(f"('note {n}', 'body {n}')" for n in range(1, NOTES + 1))
    written(store, f"insert into notes (title, body) values {rows}")
    worker = project.worker()
    until(lambda: ev.count("note") > 0)
    worker.kill()
    worker.wait(60)
    written(
        store, "update notes set body = 'changed' where id <= 10", "delete from notes where id = 11"
    )
    project.alembic("upgrade", "0002")
    written(store, "update notes set author = 'ann' where id <= 5")
    worker = project.worker()
    until(lambda: ev.queue.stats().done > 0)
    project.alembic("upgrade", "head")
    worker.kill()
    worker.wait(60)
    project.notes("add", "Tea", "It is grown on hills.", "bob")
    until(lambda: ev.process_all() is not None and ev.verify().complete)  # once leases expired
    assert [table.state for table in ev.tables()] == ["attached"]
    assert ev.count("note") == NOTES
    assert ev.get("note", 11) is None
    assert ev.get("note", 10).text == "note 10\n\nchanged"  # type: ignore[union-attr]
    assert ev.count("note", {"author": "ann"}) == 5
    found = project.notes("search", "tea grown on hills")
    assert found.splitlines()[0].endswith("Tea (bob)")
    project.alembic("check")  # models and attached tables agree

    project.alembic("downgrade", "0001")
    ev.process_all()
    assert ev.verify().complete
    assert ev.get("note", 1).metadata == {}  # type: ignore[union-attr]
    project.alembic("downgrade", "base")
    ev.process_all()
    assert (ev.tables(), ev.count()) == ([], 0)
    assert ev.verify().complete


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_a_migration_that_forgets_to_attach_again_loses_nothing(
    store: str, project: Project, ev: Evervec
) -> None:
    written(
        store,
        "insert into notes (id, title, body) values (1, 'Tea', 'hills'), (2, 'Salt', 'sea')",
        "create table rebuilt (id integer primary key, title text, body text)",
        "insert into rebuilt select id, title, body from notes",
        "drop table notes",
        "alter table rebuilt rename to notes",
        "delete from notes where id = 2",
    )
    script = project.alembic("upgrade", "0001", "--sql")
    assert "-- evervec: not a part of this script; run now: evervec --store URL attach" in script
    (table,) = json.loads(project.evervec("tables", "--json"))
    assert (table["state"], table["kind"]) == ("broken", "note")
    assert "attached again as note" in project.evervec("attach", "--again")
    ev.process_all()
    assert [record.id for record in ev.records("note")] == ["1"]
    assert ev.verify().complete
