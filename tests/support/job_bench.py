"""A store that is filled with jobs in chosen states, by plain SQL, and read back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from evervec.model.basics import as_datetime
from evervec.model.jobs import Job, Op, Status
from evervec.queue.transitions import JobState
from evervec.stores.base import Store
from evervec.stores.sqlite.changes import scope
from support import postgres
from support.engines import STORES
from support.job_states import LOST, OLD, TOKEN, impossible
from support.world import World

FRESH = 1_000_000
"""below every number that the store gives out"""
KIND, TEXT, VERSIONS = "stone", "granite", ("first", "second")
BOX = '{"text": "marble", "metadata": "{}", "weight": 1.0}'
MADE: Any = as_datetime(OLD)
_AT_ONCE = 1000
_TABLES = ("jobs", "records", "ledger", "attempts", "versions")
_VERSION = "version, kind, state, name, created_at"
_RECORD = (
    "record, tenant, kind, id, state, seq, born, weight, created_at, updated_at, metadata, text"
)
_FIELDS = [field.name for field in fields(JobState)]
COLUMNS = ["box is not null" if name == "boxed" else name for name in _FIELDS]
_JOB = "job_id, record, version, tenant, created_at, worker, " + ", ".join(
    "box" if name == "boxed" else name for name in _FIELDS
)


class Planted(NamedTuple):
    """A record with its jobs, by version: the first one serves."""

    jobs: tuple[JobState | None, ...]
    state: str = "live"
    seq: int = 1
    """of the record"""
    record: int = 0

    @property
    def id(self) -> str:
        return str(self.record)

    def job_id(self, version: int = 0) -> int:
        return 10 * self.record + version

    def job(self, version: int = 0, **changes: Any) -> Job:
        """What whoever claimed it was given."""
        state = self.jobs[version]
        assert state is not None
        held = Job(
            self.job_id(version), "default", KIND, self.id, VERSIONS[version], state.op,
            state.claimed_seq or state.seq, state.claimed_seq, Status.PROCESSING, state.priority,
            state.attempts, state.max_attempts, state.error, state.token, MADE, MADE, MADE, None,
            as_datetime(state.lease_expires_at), self.record, version + 1, "worker", state.crashes,
        )  # fmt: skip
        return replace(held, **changes)


Jobs = dict[tuple[int, int], JobState]
"""by record and version"""


class Bench:
    """A store that holds exactly what was planted. `told`: as PostgreSQL keeps a lease at first,
    in the row of its claim alone."""

    def __init__(self, world: World, *, told: bool = False) -> None:
        self.store: Store = world.ev.store
        engine: Any = self.store.engine  # type: ignore[attr-defined]
        self._db, self._sql = engine.db, engine.sql
        self.url = STORES[world.store_name].url(world.folder)
        self.is_postgres = world.store_name == "postgres"
        self._is_duckdb = world.store_name == "duckdb"
        self.told = told
        self._first = 1
        with self._db.writing(durable=False) as conn:
            engine.raise_counter(conn, FRESH)

    def plant(self, rows: Iterable[Planted], second: str = "building") -> list[Planted]:
        """Put records and jobs in, all else out; `second`: the state of the second version; empty:
        there is none."""
        planted = [row._replace(record=n) for n, row in enumerate(rows, self._first)]
        self._first += len(planted)
        width = len(planted[0].jobs)
        with self._db.writing(durable=False) as conn:
            self._clear(conn)
            states = ["serving", second][:width]
            self._insert(conn, "versions", _VERSION, [
                (n, KIND, state, VERSIONS[n - 1], 0.0) for n, state in enumerate(states, 1) if state
            ])  # fmt: skip
            self._insert(conn, "records", _RECORD, [
                (r.record, "default", KIND, r.id, r.state, r.seq, r.seq, 1.0, OLD, OLD, "{}", TEXT)
                for r in planted
            ])  # fmt: skip
            self._index_texts(conn, planted)
            jobs = [
                (row.job_id(n), row.record, n + 1, job)
                for row in planted
                for n, job in enumerate(row.jobs)
                if job is not None
            ]
            self._insert_jobs(conn, jobs)
        return planted

    def _clear(self, conn: Any) -> None:
        tables = [self._table(name) for name in _TABLES]
        if self.is_postgres:  # dead rows would be read by all that follow
            conn.execute(f"truncate {', '.join(tables)}, evervec.claims, evervec.ready")
            return
        for table in tables:
            conn.execute(f"delete from {table}")

    def read(self) -> Jobs:
        """All jobs as they are now."""
        columns = ", ".join(f"j.{column}" for column in COLUMNS)
        source = f"{self._table('jobs')} as j"
        if self.is_postgres:  # a claim may tell more of a job than its own row
            source = (
                "(select c.*, w.finished_seq, w.box from evervec.current_jobs as c "
                "join evervec.jobs as w on w.job_id = c.job_id) as j"
            )
        with self._db.reading() as conn:
            rows = conn.execute(f"select j.record, j.version, {columns} from {source}").fetchall()
        return {
            (record, version - 1): JobState(Status(status), Op(op), *rest)
            for record, version, status, op, *rest in rows
        }

    def attempts(self) -> dict[int, tuple[str, int, int]]:
        """How many were noted: by record, the last one's outcome, number and seq."""
        table = self._table("current_attempts" if self.is_postgres else "attempts")
        query = f"select record, outcome, attempt, seq from {table}"
        with self._db.reading() as conn:
            return {row[0]: tuple(row[1:]) for row in conn.execute(query).fetchall()}

    def record_states(self) -> dict[int, str]:
        query = f"select record, state from {self._table('records')}"
        with self._db.reading() as conn:
            return dict(conn.execute(query).fetchall())

    def check(self) -> None:
        """What the engine keeps beside its jobs agrees with them."""
        if self.is_postgres:
            postgres.assert_none_is_astray(self.url)
            postgres.assert_counts_are_exact(self.url)

    def _table(self, name: str) -> str:
        return f"evervec.{name}" if self.is_postgres else f"evervec_{name}"

    def _insert(self, conn: Any, table: str, columns: str, rows: Sequence[Sequence[Any]]) -> None:
        into = f"insert into {self._table(table)} ({columns})"
        if self._is_duckdb and rows:  # which takes a second for a thousand rows of literals
            places = ", ".join(f"unnest(${n})" for n in range(1, len(rows[0]) + 1))
            conn.execute(
                f"{into} select {places}", [list(cells) for cells in zip(*rows, strict=True)]
            )
            return
        for start in range(0, len(rows), _AT_ONCE):
            values = ", ".join(map(_literals, rows[start : start + _AT_ONCE]))
            conn.execute(f"{into} values {values}")

    def _index_texts(self, conn: Any, planted: Sequence[Planted]) -> None:
        """Where a text is taken out of full text by what was put in."""
        if hasattr(self._sql, "index_text"):
            conn.execute("insert into evervec_text (evervec_text) values ('delete-all')")
            shown = [(r.record, scope("default"), "", TEXT) for r in planted if r.state == "live"]
            conn.executemany(self._sql.index_text, shown)

    def _insert_jobs(self, conn: Any, jobs: Sequence[tuple[int, int, int, JobState]]) -> None:
        if self.is_postgres:
            for token in (TOKEN, LOST):
                self._insert_claim(conn, token, jobs)
        self._insert(conn, "jobs", _JOB, [
            (job_id, record, version, "default", OLD, "worker", *_cells(self._row_of(state)))
            for job_id, record, version, state in jobs
        ])  # fmt: skip
        if self.told:
            held = ", ".join(str(job_id) for job_id, _, _, state in jobs if state.held)
            conn.execute(f"delete from evervec.ready where job_id in ({held or 'null'})")
        if self.is_postgres:
            conn.execute("select evervec.recount_jobs()")

    def _insert_claim(
        self, conn: Any, token: str, jobs: Sequence[tuple[int, int, int, JobState]]
    ) -> None:
        held = sorted((job_id, s) for job_id, _, _, s in jobs if s.held and s.token == token)
        if not held:
            return
        ids = "{" + ",".join(str(job_id) for job_id, _ in held) + "}"
        seqs = "{" + ",".join(str(state.claimed_seq) for _, state in held) + "}"
        until = held[0][1].lease_expires_at
        told, written = ((ids, seqs), "{}") if self.told else (("{}", "{}"), ids)
        columns = (
            "token, worker, started_at, expires_at, leased_until, held, job_ids, seqs, written"
        )
        row = (token, "worker", OLD, until, until, len(held), *told, written)
        self._insert(conn, "claims", columns, [row])

    def _row_of(self, state: JobState) -> JobState:
        """What a job's own row says of it."""
        if not (self.told and state.held):
            return state
        return replace(
            state, status=Status.PENDING, claimed_seq=None, token=None, started_at=None,
            lease_expires_at=None, attempts=state.attempts - 1,
        )  # fmt: skip


def _cells(state: JobState) -> tuple[Any, ...]:
    cells = {name: getattr(state, name) for name in _FIELDS}
    return tuple({**cells, "boxed": BOX if state.boxed else None}.values())


def _literals(row: Sequence[Any]) -> str:
    """Values as SQL has them on every engine."""
    return "(" + ", ".join(map(_literal, row)) + ")"


def _literal(value: Any) -> str:
    if value is None:
        return "null"
    return f"'{value}'" if isinstance(value, str) else repr(value)


def differences(
    event: str,
    before: Iterable[tuple[tuple[int, int], object]],
    expected: Mapping[tuple[int, int], JobState | None],
    found: Jobs,
) -> Iterator[str]:
    """What is not as the rules say: state, event, expected and found."""
    for key, state in before:
        wanted, there = expected.get(key), found.get(key)
        if wanted != there:
            yield f"{event} met {state}\n  expected {wanted}\n  found    {there}"
        elif there is not None and (why := impossible(there)):
            yield f"{event} made of {state}\n  what cannot be ({why}): {there}"
