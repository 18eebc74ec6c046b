"""Behind a real PgBouncer in transaction mode, where no two transactions need share a connection.

It is Debian's package of that name: one that is installed, or that root can install. Without
it these tests are left out, and the run's summary says so.
"""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from evervec import Evervec
from support import postgres
from support.fault_checks import assert_true_to, open_store
from support.processes import until
from support.programs import program

BEHIND: dict[str, Any] = {"postgres_prepare": False, "listen": False, "poll_seconds": 0.05}
SERVERS = 20  # connections that it has to the server; a thread may need two of them at once
SETTINGS = """
[databases]
* = {server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {servers}
max_client_conn = 200
logfile = {folder}/log
"""


@pytest.fixture
def direct() -> Iterator[str]:
    url = postgres.DATABASES.borrow()
    yield url
    postgres.DATABASES.give_back(url)


@pytest.fixture
def behind(direct: str) -> Iterator[str]:
    """The address of the same database through PgBouncer."""
    bouncer = program("pgbouncer", "pgbouncer", alone=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    parts = conninfo_to_dict(direct)
    database = parts["dbname"]
    names = ("host", "port", "user", "password")
    server = " ".join(f"{name}={parts[name]}" for name in names if parts.get(name))
    folder = Path(f"/tmp/evervec-pgbouncer-{os.getpid()}")
    folder.mkdir()
    folder.chmod(0o777)
    config = folder / "pgbouncer.ini"
    config.write_text(
        SETTINGS.format(server=server, port=port, servers=SERVERS, folder=folder), "utf-8"
    )
    user = ["--user", _owner(Path(str(parts["host"])))] if os.getuid() == 0 else []
    running = subprocess.Popen([bouncer, *user, str(config)], stderr=subprocess.DEVNULL)
    url = f"postgresql://{parts['user']}@127.0.0.1:{port}/{database}"
    try:
        until(lambda: _answers(url), "PgBouncer to answer")
        yield url
    finally:
        running.terminate()
        running.wait()
        shutil.rmtree(folder)


def _owner(server: Path) -> str:
    """Who may go into the folder of the server's socket; PgBouncer does not run as root."""
    return server.owner() if server.is_dir() else "nobody"


def _answers(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=2):
            return True
    except psycopg.OperationalError:
        return False


def _done(ev: Evervec, count: int) -> bool:
    return ev.queue.stats().done == count


def test_writers_and_workers_share_its_connections(behind: str, direct: str) -> None:
    """Settings of one transaction do not reach into another's, and nothing is lost."""
    texts = {f"{writer}-{n}": f"alpha {writer} {n}" for writer in range(4) for n in range(30)}
    with open_store(behind, **BEHIND) as first, open_store(behind, **BEHIND) as second:

        def write(ev: Evervec, writer: int) -> None:
            for id, text in texts.items():
                if id.startswith(f"{writer}-"):
                    ev.add("note", text, id=id)

        with first.worker(), second.worker():
            writers = [
                threading.Thread(target=write, args=((first, second)[n % 2], n)) for n in range(4)
            ]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
            until(lambda: _done(first, len(texts)), "all to be done")
        servers = """select count(*) from pg_stat_activity
            where application_name = 'evervec' and datname = current_database()"""
        assert postgres.execute(direct, servers)[0][0] <= SERVERS
        assert len(first.search("alpha", k=200)) == len(texts)
        assert_true_to(first, direct, texts)


def test_bulk_work_leases_and_a_callers_transaction_do_as_they_do_without(
    behind: str, direct: str
) -> None:
    with open_store(behind, **BEHIND) as ev:
        ev.queue.enqueue_many("row", range(1000))
        ev.queue.enqueue_many("row", range(500, 1500))
        while jobs := ev.queue.claim(400):
            assert all(ev.queue.renew_many(jobs))
            ev.queue.release_many(jobs[:1])
            assert ev.queue.finish_many(jobs) == [False] + [True] * (len(jobs) - 1)
            if len(jobs) == 1:
                break
        with psycopg.connect(behind, prepare_threshold=None) as conn:
            ev.add("note", "alpha", id="kept", conn=conn)
            conn.commit()
            ev.add("note", "beta", id="dropped", conn=conn)
            conn.rollback()
        assert [record.id for record in ev.records()] == ["kept"]
