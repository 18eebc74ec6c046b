"""The HNSW index: built beside the work, rebuilt after a killed build, and as right as without."""

from typing import Any

import numpy as np
import psycopg
import pytest

from evervec.indexes.base import Query
from evervec.indexes.pgvector import PgvectorIndex, hnsw
from evervec.maintenance.metrics import index_metrics
from evervec.model.records import Change, Point
from evervec.runtime.threads import submit
from evervec.stores.postgres.connections import Session
from support import postgres
from support.processes import until
from support.world import KIND, World, work

COUNT = 400


def index_of(world: World) -> PgvectorIndex:
    assert isinstance(world.ev.index, PgvectorIndex)
    return world.ev.index


def fill(world: World, **settings: object) -> tuple[PgvectorIndex, int, np.ndarray]:
    """Two tenants, one of them large, with vectors at random, in one table unless told otherwise."""
    ev = world.open(**{"pgvector_partitions": 1, **settings})
    ev.add(KIND, "alpha", id="first")
    (collection,) = ev.store.versions.collections()
    vectors = np.random.default_rng(5).normal(size=(COUNT + 20, 64)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    changes = [
        Change(
            10_000 + n, collection.version, "default" if n < COUNT else "small", KIND, str(n),
            10**9, [Point(n.to_bytes(16), 0, "", vector)],
        )
        for n, vector in enumerate(vectors)
    ]  # fmt: skip
    assert isinstance(ev.index, PgvectorIndex)
    ev.index.apply(changes)
    return ev.index, collection.version, vectors


def state(url: str, version: int) -> list[bool]:
    query = """select indisvalid from pg_index
               join pg_class as c on c.oid = indexrelid where relname ~ $1"""
    return [row[0] for row in postgres.execute(url, query, f"^points_{version}(_[0-9]+)?_hnsw$")]


def is_built(url: str, version: int) -> bool:
    """One table, or each of its partitions."""
    ((parts,),) = postgres.execute(
        url, "select count(*) from pg_inherits where inhparent = $1::regclass",
        f"evervec.points_{version}",
    )  # fmt: skip
    return state(url, version) == [True] * max(parts, 1)


def close_last(world: World) -> None:
    """PostgreSQL counts what a connection did when that ends, and else up to 10 s later."""
    world.opened.pop().close()


def exact(vectors: np.ndarray, asked: np.ndarray, k: int) -> list[int]:
    return [10_000 + int(n) for n in np.argsort(-(vectors[:COUNT] @ asked))[:k]]


@pytest.mark.parametrize(("half", "parts"), [(False, 1), (True, 1), (False, 4)])
def test_searches_by_hnsw_find_what_exact_ones_do(
    world: World, url: str, half: bool, parts: int
) -> None:
    index, version, vectors = fill(
        world, hnsw_rows=100, pgvector_half=half, pgvector_partitions=parts
    )
    assert index.build_hnsw(version)
    assert not index.build_hnsw(version)  # it is there
    assert state(url, version) == [True] * parts
    found = expected = 0
    for asked in vectors[:20]:
        wanted = exact(vectors, asked, 10)
        matches = index.search(Query(version, "default", asked, 10))
        assert next(iter(matches)).similarity == pytest.approx(1.0, abs=1e-3)
        assert [m.similarity for m in matches] == sorted(
            (m.similarity for m in matches), reverse=True
        )
        found += len(set(wanted) & {m.record for m in matches})
        expected += len(wanted)
    assert found / expected > 0.95
    small = index.search(Query(version, "small", vectors[0], 50))
    assert len(small) == 20  # a small tenant is searched exactly
    ((point,),) = index.vectors(version, [10_007]).values()
    np.testing.assert_allclose(point.vector, vectors[7], atol=1e-3 if half else 0)


def test_a_filter_that_few_pass_still_finds_them_by_hnsw(world: World) -> None:
    ev = world.open(hnsw_rows=50)
    for n in range(200):
        ev.add(KIND, f"alpha beta {n}", id=n, metadata={"rare": n % 100 == 0})
    work(ev)
    (collection,) = ev.store.versions.collections()
    assert isinstance(ev.index, PgvectorIndex)
    assert ev.index.build_hnsw(collection.version)
    hits = ev.search("alpha beta", k=10, mode="semantic", filter={"rare": True})
    assert {hit.id for hit in hits} == {"0", "100"}


def test_it_is_built_in_the_background_once_a_collection_is_large(
    world: World, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evervec.indexes.pgvector.hnsw._LOOK_AGAIN", 0.0)
    index, version, _ = fill(world, hnsw_rows=100)
    postgres.execute(url, f"analyze evervec.points_{version}")
    index.apply([Change(9, version, "default", KIND, "9", 10**9, [_point()])])
    until(lambda: state(url, version) == [True], "the index to be built")
    index.apply([Change(9, version, "default", KIND, "9", 10**9 + 1)])
    assert index.held(version, None, 8, 9) == []


def _point() -> Point:
    return Point(b"x" * 16, 0, "", np.eye(64, dtype=np.float32)[0])


def test_what_a_killed_build_left_behind_is_built_anew(world: World, url: str) -> None:
    index, version, vectors = fill(world, hnsw_rows=100)
    # as it stands after a build that was broken off: there, and not valid
    with psycopg.connect(url, autocommit=True) as other, psycopg.connect(url) as blocker:
        blocker.execute(f"lock table evervec.points_{version} in row exclusive mode".encode())
        other.execute("set lock_timeout = '200ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            other.execute(
                f"create index concurrently points_{version}_hnsw on evervec.points_{version} "
                "using hnsw (vector vector_cosine_ops)".encode()
            )
    assert state(url, version) == [False]
    assert index.build_hnsw(version)
    assert state(url, version) == [True]
    assert next(iter(index.search(Query(version, "default", vectors[3], 1)))).record == 10_003


def test_only_one_process_builds_it(world: World, url: str) -> None:
    index, version, _ = fill(world, hnsw_rows=100)
    with psycopg.connect(url, autocommit=True) as other:
        name = f"points_{version}_hnsw"
        other.execute("select pg_advisory_lock(1702260082, hashtext(%s))", (name,))
        assert not index.build_hnsw(version)
        other.execute("select pg_advisory_unlock_all()")  # the end of a session takes its time
    assert index.build_hnsw(version)


def test_without_a_threshold_there_is_none(world: World, url: str) -> None:
    index, version, vectors = fill(world, hnsw_rows=0)
    postgres.execute(url, f"analyze evervec.points_{version}")
    assert next(iter(index.search(Query(version, "default", vectors[3], 1)))).record == 10_003
    assert state(url, version) == []


def test_a_search_reads_the_hnsw_index_of_each_partition(world: World, url: str) -> None:
    index, version, vectors = fill(world, hnsw_rows=100, pgvector_partitions=4)
    index.build_hnsw(version)
    index.search(Query(version, "default", vectors[3], 10))
    close_last(world)
    scans = """select indexrelname::text, idx_scan from pg_stat_user_indexes
               where indexrelname like '%\\_hnsw' order by 1"""
    wanted = [(f"points_{version}_{part}_hnsw", 1) for part in range(4)]
    until(lambda: postgres.execute(url, scans) == wanted, "the statistics of each index")


def test_an_index_that_lacks_a_partition_is_not_used_and_completed(world: World, url: str) -> None:
    index, version, vectors = fill(world, hnsw_rows=100, pgvector_partitions=2)
    with psycopg.connect(url, autocommit=True) as other:
        name = f"points_{version}_1_hnsw"
        other.execute("select pg_advisory_lock(1702260082, hashtext(%s))", (name,))
        assert index.build_hnsw(version)  # one of the two: another process builds the other
        assert len(index.search(Query(version, "default", vectors[3], 10))) == 10
        other.execute("select pg_advisory_unlock_all()")
    assert state(url, version) == [True]
    assert index.build_hnsw(version)
    assert state(url, version) == [True, True]


def test_partitions_hold_the_records_and_go_with_their_version(world: World, url: str) -> None:
    index, version, _ = fill(world, pgvector_partitions=4)
    rows = [
        postgres.execute(url, f"select count(*) from only evervec.points_{version}_{part}")[0][0]
        for part in range(4)
    ]
    assert sum(rows) == COUNT + 20
    assert min(rows) > COUNT // 8
    other = world.open(pgvector_partitions=8)  # what is there keeps its partitions
    other.add(KIND, "beta", id="second")
    work(other)
    assert other.verify().missing == 0
    index.drop(version)
    left = "select tablename::text from pg_tables where tablename like 'points%'"
    assert postgres.execute(url, left) == []


def test_an_index_is_built_and_used_after_a_load_that_has_stopped(world: World, url: str) -> None:
    ev = world.open(hnsw_rows=100)
    list(ev.add_many(KIND, ({"id": n, "text": f"alpha beta {n}"} for n in range(150))))
    work(ev)
    (collection,) = ev.store.versions.collections()
    version = collection.version
    assert state(url, version) == []  # nobody has analyzed the table, and nothing is written
    ev.index.maintain(0.0)
    until(lambda: is_built(url, version), "the index to be built")
    index = ev.index
    assert isinstance(index, PgvectorIndex)
    until(lambda: index._tables[version].hnsw, "the search to see the index")
    assert len(ev.search("alpha beta 7", k=10, mode="semantic")) == 10
    close_last(world)
    scans = f"""select distinct idx_scan from pg_stat_user_indexes
                where indexrelname ~ '^points_{version}(_[0-9]+)?_hnsw$'"""
    until(lambda: postgres.execute(url, scans) == [(1,)], "the statistics of the index")


def test_every_large_collection_gets_its_index_in_one_look(world: World, url: str) -> None:
    ev = world.open(hnsw_rows=10)
    for kind in ("first", "second"):
        list(ev.add_many(kind, ({"id": n, "text": f"alpha {n}"} for n in range(20))))
    work(ev)
    versions = [c.version for c in ev.store.versions.collections()]
    ev.index.maintain(0.0)
    until(lambda: all(is_built(url, v) for v in versions), "both indexes to be built")


def test_partitions_are_built_beside_each_other(world: World, url: str) -> None:
    index, version, _ = fill(world, hnsw_rows=100, pgvector_partitions=2)
    first = f"points_{version}_0"
    with psycopg.connect(url) as blocker:
        blocker.execute(f"lock table evervec.{first} in row exclusive mode".encode())
        building = submit("building", lambda: index.build_hnsw(version))
        until(lambda: state(url, version).count(True) == 1, "the other partition's index")
        until(lambda: index.builds() != [], "the first one's to be shown")
        (build,) = index.builds()
        assert (build.kind, build.done, build.seconds_left) == (KIND, 0.5, None)
        ((text, topic),) = [
            (s.text, s.topic) for s in world.ev.summary() if "is being built" in s.text
        ]
        assert text == f"The vector index of {KIND} is being built: 50%."
        assert topic == "index"
        metrics = index_metrics(index)
        assert [s.value for m in metrics for s in m.samples] == [0.5]
    assert building.result(60)
    assert index.builds() == []
    assert state(url, version) == [True, True]


def test_a_build_takes_the_memory_that_its_graph_needs_but_no_more_than_allowed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, version, _ = fill(world, hnsw_rows=100, hnsw_memory_mb=100)
    rows = 2_000_000
    monkeypatch.setattr(hnsw, "_state", lambda conn, table: (float(rows), 0))
    asked = {}

    def built(name: str, on: str, *, memory_kb: int, workers: int) -> bool:
        asked[name] = memory_kb
        return False

    monkeypatch.setattr(index._hnsw._builder, "build", built)
    index.build_hnsw(version)
    assert asked == {f"points_{version}_hnsw": 100 * 1024}
    rows = 70_000
    index._hnsw._most_kb = 1024**2
    index.build_hnsw(version)
    assert 70_000 * 64 * 4 < 1024 * asked[f"points_{version}_hnsw"] < 110 * 1024**2
    rows = 30_000  # PostgreSQL would start no helper with less
    index.build_hnsw(version)
    assert asked == {f"points_{version}_hnsw": 3 * 32 * 1024}


def test_a_build_whose_memory_the_server_cannot_share_is_done_by_one_process(
    world: World, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, version, _ = fill(world, hnsw_rows=100)
    execute = Session.execute
    refused: list[str] = []

    def refusing(self: Session, query: str, *given: Any, **how: Any) -> Any:
        if query.startswith("create index concurrently") and not refused:
            refused.append(query)
            raise psycopg.errors.DiskFull("could not resize shared memory segment")
        return execute(self, query, *given, **how)

    monkeypatch.setattr(Session, "execute", refusing)
    assert index.build_hnsw(version)
    assert refused
    assert state(url, version) == [True]


def test_a_graph_that_does_not_fit_into_its_memory_is_logged(
    world: World, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    index, version, _ = fill(world, hnsw_rows=100, hnsw_memory_mb=1)
    postgres.execute(
        url,
        f"""insert into evervec.points_{version} (record, seq, position, tenant, hash, vector)
            select n, 1, 0, 'default', '',
                   (select array_agg(random() + 0 * (n + i))::vector from generate_series(1, 64) as i)
            from generate_series(100000, 102400) as n""",
    )
    postgres.execute(url, f"analyze evervec.points_{version}")
    # what the server is set to is never undercut
    name = postgres.execute(url, "select current_database()")[0][0]
    postgres.execute(url, f"alter database {name} set maintenance_work_mem = '1MB'")
    try:
        index._db.pool.drain()
        assert index.build_hnsw(version)
    finally:
        postgres.execute(url, f"alter database {name} reset maintenance_work_mem")
    assert "no longer fits into maintenance_work_mem" in caplog.text
