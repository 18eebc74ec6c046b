"""Opening a PostgreSQL store: clear errors, no secrets, and what a server may lack."""

import logging
import subprocess
import sys
from random import Random

import pytest

import evervec
from evervec import IndexUnavailable, StoreError
from evervec.embedders.hashing import HashingEmbedder
from evervec.errors import ValueRefused
from support import postgres
from support.world import KIND, World, assert_in_step, work

SECRET = "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}@127.0.0.1:1/db",
        f"postgres://127.0.0.1:1/db?user=ann&password={SECRET}",
        f"postgresql://ann:{SECRET}@127.0.0.1:no-port/db",
        f"postgresql://ann:{SECRET}@127.0.0.1:1/db?unknown={SECRET}",
    ],
)
def test_no_error_and_no_log_shows_the_password(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(StoreError) as caught:
        evervec.open(url, embedder="hashing", connect_seconds=0.5)
    told: BaseException | None = caught.value
    while told is not None:
        assert SECRET not in str(told)
        told = told.__cause__ or (None if told.__suppress_context__ else told.__context__)
    assert SECRET not in caplog.text
    assert "postgresql://" in str(caught.value)


def test_the_stores_name_has_no_user_and_no_password(world: World, url: str) -> None:
    assert world.ev.store.url.startswith("postgresql://")
    assert "postgres@" not in world.ev.store.url
    assert "host=" not in world.ev.store.url


def test_a_missing_driver_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "import evervec\n"
        "try: evervec.open('postgresql://h/d', embedder='noop')\n"
        "except evervec.SettingsError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert "pip install 'evervec[postgres]'" in done.stdout


def test_nothing_of_the_driver_is_imported_without_need() -> None:
    program = (
        "import sys, evervec; evervec.open('memory:', embedder='noop').close()\n"
        "print('psycopg' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "False"


def test_a_database_that_does_not_exist_says_so() -> None:
    with pytest.raises(StoreError, match="does not exist"):
        evervec.open(postgres.url_of("no_such_database"), embedder="hashing")


def test_it_works_without_prepared_statements_and_listen(world: World) -> None:
    """As behind PgBouncer in transaction mode."""
    ev = world.open(postgres_prepare=False, listen=False)
    for n in range(12):
        ev.add(KIND, f"alpha {n}", id=n)
    work(ev)
    assert_in_step(ev, {str(n): f"alpha {n}" for n in range(12)})
    assert len(ev.search("alpha", k=12)) == 12


@pytest.fixture
def poor() -> str:
    """A database whose user owns it, but may not create the extension."""
    url = postgres.DATABASES.create()
    name = url.partition("?")[0].rpartition("/")[2]
    postgres.execute(url, f"create role {name} login")
    postgres.execute(url, f"create schema evervec authorization {name}")
    options = url.partition("?")[2]
    return f"postgresql://{name}@/{name}?{options}"


def test_an_extension_that_may_not_be_made_leaves_text_and_says_what_to_do(poor: str) -> None:
    with evervec.open(poor, embedder=HashingEmbedder(64)) as ev:
        assert "extension vector" in (ev.store.check() or "")
        ev.add(KIND, "alpha", id="1")
        jobs = ev.pipeline.claim(1)
        batch, _ = ev.pipeline.prepare(jobs)
        ev.pipeline.embed(batch)
        with pytest.raises(IndexUnavailable, match="CREATE EXTENSION vector"):
            ev.pipeline.write(batch)
        hits = ev.search("alpha")
        assert [hit.id for hit in hits] == ["1"]
        assert hits.via in ("text", "hybrid")
    postgres.execute(postgres.url_of(poor.partition("?")[0].rpartition("/")[2]),
                     "create extension vector")  # fmt: skip
    with evervec.open(poor, embedder=HashingEmbedder(64)) as ev:
        assert ev.store.check() is None
        ev.queue.recover_stuck(0)
        ev.process_all()
        assert ev.verify().clean


def test_a_value_that_the_database_refuses_is_not_called_a_lost_connection(world: World) -> None:
    key = Random(7).randbytes(2000).hex()
    with pytest.raises(ValueRefused, match=r"rejected a value.*index row size"):
        world.ev.store.changes.enqueue("default", KIND, [key], loaded=False)
    assert world.ev.queue.stats().pending == 0
