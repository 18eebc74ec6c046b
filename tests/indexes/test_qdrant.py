"""What only a Qdrant index has: its requests, key, breaker, and connections that break."""

import logging
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evervec
from evervec import Evervec, Kind, SettingsError, Status
from evervec.chunking import hash_text
from evervec.errors import IndexBusy, IndexUnavailable
from evervec.indexes.base import Query, Stray, patience
from evervec.indexes.qdrant import edge_shard
from evervec.runtime.backoff import Breaker
from indexes.conftest import Make
from indexes.test_races import RECORD, SEQ, version_of, words_in
from support import qdrant_server
from support.fault_disk import mounts, small_disk
from support.qdrant_server import QdrantServer
from support.vectors import change, vector
from support.world import DAY, KIND, World, assert_in_step, work


def server_of(world: World) -> QdrantServer:
    return qdrant_server.server_of(world.folder)


def test_a_collection_is_made_as_it_should_be(make: Make) -> None:
    options = {"qdrant_quantization": "scalar", "qdrant_shards": 3, "qdrant_replicas": 2}
    world = make("qdrant", qdrant_collection="notes", **options)
    asked = {(m, p): b for m, p, b in server_of(world).seen if m == "PUT" and "index" not in p}
    (body,) = asked.values()
    assert list(asked) == [("PUT", "/collections/notes")]
    assert body["vectors"] == {"size": 64, "distance": "Cosine"}
    assert body["hnsw_config"] == {"m": 16, "ef_construct": 128}
    assert body["quantization_config"]["scalar"]["type"] == "int8"
    assert (body["shard_number"], body["replication_factor"]) == (3, 2)
    indexes = indexes_made(world)
    assert indexes["tenant"] == {"type": "keyword", "is_tenant": True}
    assert indexes["seq"] == "integer"
    assert indexes.keys() == {
        "tenant", "kind", "version", "record", "seq", "removed_at", "weight"
    }  # fmt: skip


def indexes_made(world: World) -> dict[str, Any]:
    """The payload indexes that were requested since `seen` was last cleared."""
    asked = [body for _, path, body in server_of(world).seen if path.endswith("/index")]
    return {body["field_name"]: body["field_schema"] for body in asked}


DECISION = Kind(
    KIND,
    index_fields={"agent": str, "decision_type": str, "confidence": float, "valid_from": float},
)


def test_declared_fields_get_payload_indexes(tmp_path: Path) -> None:
    world = World(("sqlite", "qdrant"), tmp_path)
    world.ev.register(DECISION)
    world.ev.register(Kind("other", index_fields=["state", "a field", 'no "path"']))
    world.ev.add(KIND, "alpha", metadata={"agent": "a1", "confidence": 0.9})
    world.ev.add("other", "beta", metadata={"state": "draft"})
    work(world.ev)
    made = {k: v for k, v in indexes_made(world).items() if k.startswith("metadata")}
    assert made == {
        "metadata.agent": "keyword",
        "metadata.decision_type": "keyword",
        "metadata.confidence": "float",
        "metadata.valid_from": "float",
        "metadata.state": "keyword",
        'metadata."a field"': "keyword",
    }
    for wanted in ({"agent": "a1"}, {"confidence": {"gte": 0.5}}, {"confidence": 0.9}):
        assert len(world.ev.search("alpha", mode="semantic", kind=KIND, filter=wanted)) == 1
    world.close()


def test_a_collection_that_exists_gets_the_payload_indexes_that_it_lacks(make: Make) -> None:
    world = make("qdrant")
    world.ev.register(Kind(KIND, index_fields={"agent": str, "urgent": bool}))
    server = server_of(world)
    server.seen.clear()
    world.ev.index.maintain(0)
    assert indexes_made(world) == {"metadata.agent": "keyword", "metadata.urgent": "bool"}
    server.seen.clear()
    world.ev.index.maintain(0)
    assert indexes_made(world) == {}

    # a process without the kind does the same before its first write
    world.ev.register(Kind(KIND, index_fields=["agent", "state"]))
    other = world.open()
    other.add(KIND, "alpha", metadata={"agent": "a1", "urgent": True})
    work(other)
    assert indexes_made(world) == {"metadata.state": "keyword"}
    assert len(other.search("alpha", mode="semantic", filter={"urgent": True})) == 1


def test_a_server_that_refuses_a_payload_index_is_written_all_the_same(
    make: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make("qdrant")
    world.ev.register(Kind(KIND, index_fields=["agent"]))

    def refuses(*_: object) -> None:
        raise ValueError("not allowed")

    monkeypatch.setattr(server_of(world).collections, "index", refuses)
    other = world.open()
    other.add(KIND, "alpha", metadata={"agent": "a1"})
    work(other)
    assert len(other.search("alpha", mode="semantic", filter={"agent": "a1"})) == 1
    assert "lacks payload indexes" in caplog.text


def test_the_embedded_engine_keeps_declared_fields_ready(make: Make) -> None:
    world = make("qdrant-edge")
    world.ev.register(DECISION)
    world.ev.index.maintain(0)
    known = world.ev.index._engine.known("evervec_hashing-64")  # type: ignore[attr-defined]
    assert {"tenant", "metadata.agent", "metadata.valid_from"} <= set(known.indexed)


def test_the_tenant_is_part_of_every_query_and_batches_are_one_request(make: Make) -> None:
    world = make("qdrant")
    server = server_of(world)
    server.seen.clear()
    for n in range(100):
        world.ev.add(KIND, f"alpha {n}", id=n)
    work(world.ev)
    assert [p.rpartition("/")[2] for _, p, _ in server.seen] == ["scroll", "batch", "scroll"]
    world.ev.search("alpha", mode="semantic")
    queries = [b for _, p, b in server.seen if p.endswith("/query")]
    assert queries
    for query in queries:
        assert {"key": "tenant", "match": {"value": "default"}} in query["filter"]["must"]


def test_points_carry_what_a_search_needs(make: Make) -> None:
    world = make("qdrant")
    world.ev.add(KIND, "alpha", id="x", metadata={"agent": "a1"}, weight=0.5)
    work(world.ev)
    points = server_of(world).collections.payloads("evervec_hashing-64")
    (payload,) = [p for p in points if "hash" in p]
    assert {k: payload[k] for k in ("tenant", "kind", "id", "position", "text", "weight")} == {
        "tenant": "default", "kind": KIND, "id": "x", "position": 0, "text": "alpha", "weight": 0.5,
    }  # fmt: skip
    assert payload["metadata"] == {"agent": "a1"}
    assert payload["hash"] == hash_text("alpha").hex()
    assert payload["updated_at"] == world.clock.now


def test_a_connection_lost_in_the_middle_of_a_batch_is_healed_by_the_next_try(make: Make) -> None:
    """The request was done, or half of it; its answer never came."""
    world = make("qdrant")
    server = server_of(world)
    texts = {str(n): f"alpha {n}" for n in range(5)}
    for id, text in texts.items():
        world.ev.add(KIND, text, id=id)
    server.cut = lambda _, path: path.endswith("/points/batch")
    batch, _ = world.ev.pipeline.prepare(world.ev.pipeline.claim(10))
    world.ev.pipeline.embed(batch)
    with pytest.raises(IndexUnavailable):
        world.ev.pipeline.write(batch)
    half = world.ev.index.held
    server.cut = lambda _method, _path: False
    world.ev.index._engine._breaker.worked()  # type: ignore[attr-defined]
    version = version_of(world)
    world.ev.index.remove(version, half(version, None, 0, None)[:2])
    assert world.ev.pipeline.write(batch).succeeded == 5
    assert_in_step(world.ev, texts)


def test_what_is_away_is_left_alone_and_tried_again(make: Make) -> None:
    world = make("qdrant")
    server, version = server_of(world), version_of(world)
    now = [0.0]
    breaker = world.ev.index._engine._breaker = Breaker(1.0, 30.0, lambda: now[0])  # type: ignore[attr-defined]
    server.stop()
    for _ in range(3):
        with pytest.raises(IndexUnavailable, match="cannot be used"):
            world.ev.index.search(Query(version, "default", vector("a"), 5))
    server.start()
    with pytest.raises(IndexUnavailable):  # nobody asks it for a while
        world.ev.index.search(Query(version, "default", vector("a"), 5))
    now[0] = 1.5
    assert not world.ev.index.search(Query(version, "default", vector("a"), 5))
    breaker.check(IndexUnavailable)


def test_while_one_tries_it_the_others_wait() -> None:
    now = [0.0]
    breaker = Breaker(1.0, 30.0, lambda: now[0])
    for _ in range(20):
        breaker.failed("away")
    now[0] = 29.0
    with pytest.raises(IndexUnavailable, match="away"):
        breaker.check(IndexUnavailable)
    now[0] = 31.0
    breaker.check(IndexUnavailable)
    with pytest.raises(IndexUnavailable, match="away"):
        breaker.check(IndexUnavailable)
    breaker.worked()
    breaker.check(IndexUnavailable)


def test_tombstones_go_with_the_history_and_not_before(make: Make) -> None:
    world = make("qdrant")
    version, index = version_of(world), world.ev.index
    index.apply([change(version, RECORD, SEQ + 5)])
    world.ev._housekeeping.sweep()
    index.apply([change(version, RECORD, SEQ, ["late"])])
    assert words_in(world) == set()
    world.clock.move(8 * DAY)
    assert world.ev._housekeeping.sweep()
    assert server_of(world).collections.payloads("evervec_hashing-64") == []


def test_a_key_is_sent_and_never_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = QdrantServer(key="hush")
    try:
        with caplog.at_level(logging.DEBUG):
            options: dict[str, Any] = {"index": server.url, "embedder": "hashing"}
            with evervec.open(tmp_path / "a.db", qdrant_key="hush", **options) as ev:
                ev.add("note", "alpha", id="1")
                assert ev.process_all().succeeded == 1
                assert "hush" not in repr(ev.settings)
            with evervec.open(tmp_path / "b.db", qdrant_key="wrong", **options) as ev:
                ev.add("note", "alpha", id="1")
                with pytest.raises(IndexUnavailable, match="401"):
                    ev.process_all()
        assert "hush" not in caplog.text
        assert "wrong" not in caplog.text
        assert "unencrypted" in caplog.text
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("url", "options", "said"),
    [
        ("qdrant://user:secret@host", {}, "qdrant_key"),
        ("qdrant://host:port", {}, "not a number"),
        ("qdrant://:memory:", {"qdrant_quantization": "tiny"}, "scalar"),
        ("qdrant-edge://x", {"qdrant_quantization": "tiny"}, "tiny"),
        ("milvus://host", {}, "unknown index URL"),
        ("lancedb://", {}, "unknown index URL"),
    ],
)
def test_what_is_no_index_is_refused(
    tmp_path: Path, url: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(SettingsError, match=said) as raised:
        evervec.open(tmp_path / "a.db", index=url, embedder="hashing", **options)
    assert "secret" not in str(raised.value)


def test_new_chunks_of_an_embedded_engine_take_the_places_of_old_ones(make: Make) -> None:
    world = make("qdrant-edge")
    version, index = version_of(world), world.ev.index

    def points() -> set[str]:
        return {p.key for p in index.held(version, None, RECORD - 1, RECORD)}

    steps: list[tuple[list[str], list[str]]] = [
        (["a", "b"], []), (["c"], ["b"]), (["a"], ["c", "b"]), (["d", "e", "f"], []),
        (["b"], ["e", "f"]), ([], ["b"]), ([], []), (["a", "b"], []), (["c", "d"], []),
    ]  # fmt: skip
    used = []
    for seq, (new, kept) in enumerate(steps, SEQ):
        index.apply([change(version, RECORD, seq, new, kept)])
        assert words_in(world) == {hash_text(word) for word in new + kept}
        for word in new + kept:
            (best, *_) = index.search(Query(version, "default", vector(word), 1))
            assert (best.hash, round(best.similarity, 3)) == (hash_text(word), 1)
        used.append(points())
    assert used[1] == used[0]
    assert used[2] > used[1]
    assert used[3] == used[2]
    assert used[8] == used[7]


def test_the_embedded_engine_keeps_what_was_written(make: Make) -> None:
    world = make("qdrant-edge")
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    other = world.open()
    assert [h.id for h in other.search("alpha", mode="semantic")] == ["1"]
    world.ev._housekeeping.sweep()
    world.ev.close()
    other.close()
    again = world.open()
    assert_in_step(again, {"1": "alpha"})


@pytest.mark.parametrize(
    ("index", "store"), [("qdrant-edge", "sqlite"), ("qdrant-memory", "memory")]
)
@pytest.mark.parametrize("step", ["apply", "remove", "revive", "drop", "drop strays", "maintain"])
def test_nobody_comes_between_a_look_and_a_write_where_the_engine_has_no_guards(
    make: Make, monkeypatch: pytest.MonkeyPatch, index: str, store: str, step: str
) -> None:
    world = make(index, store)
    version, mine = version_of(world), world.ev.index
    engine: Any = mine._engine  # type: ignore[attr-defined]
    name = mine._collection(version)  # type: ignore[attr-defined]
    mine.apply([change(version, RECORD, SEQ, ["a", "b"])])
    held = mine.held(version, None, RECORD - 1, RECORD)
    stray = Stray(version, "default", 1, (name, engine.all(engine.equals("tenant", "default"))))
    steps: dict[str, Callable[[], object]] = {
        "apply": lambda: mine.apply([change(version, RECORD, SEQ + 1, ["c"])]),
        "remove": lambda: mine.remove(version, held),
        "revive": lambda: mine.revive(version, [RECORD]),
        "drop": lambda: mine.drop(version),
        "drop strays": lambda: mine.drop_strays([stray]),
        "maintain": lambda: mine.maintain(world.clock.now + DAY),
    }
    between, refused = [], []

    def come_between() -> None:
        with patience(0):
            try:
                mine.apply([change(version, RECORD + 1, SEQ, ["d"])])
            except IndexBusy as error:
                refused.append(error)

    def hold_up(method: str) -> None:
        ask = getattr(engine, method)

        def held_up(*given: Any) -> Any:
            answer = ask(*given)
            if threading.current_thread().name == "other":  # nobody comes between that one
                return answer
            other = threading.Thread(target=come_between, name="other")
            other.start()
            other.join()
            between.append(method)
            return answer

        monkeypatch.setattr(engine, method, held_up)

    hold_up("scroll")
    hold_up("update")
    steps[step]()
    assert between
    assert len(refused) == len(between)
    monkeypatch.undo()
    with patience(0):
        mine.apply([change(version, RECORD + 1, SEQ, ["d"])])


def test_a_repair_takes_out_nothing_that_a_worker_writes_meanwhile(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make("qdrant-edge")
    version, index = version_of(world), world.ev.index
    index.apply([change(version, RECORD, SEQ, ["old"])])
    engine, meanwhile = index._engine, []  # type: ignore[attr-defined]
    scroll = engine.scroll

    def looked(*given: Any) -> Any:
        found = scroll(*given)
        monkeypatch.setattr(engine, "scroll", scroll)
        newer = [change(version, RECORD, SEQ + 1, ["new"])]
        meanwhile.append(threading.Thread(target=index.apply, args=(newer,)))
        meanwhile[0].start()
        return found

    points = index.held(version, None, RECORD - 1, RECORD)
    monkeypatch.setattr(engine, "scroll", looked)
    assert index.remove(version, points) == 1
    meanwhile[0].join()
    assert words_in(world) == {hash_text("new")}


@pytest.mark.parametrize("when", ["before it is made", "before a write", "before it is loaded"])
def test_a_full_disk_is_an_error_and_not_the_end_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A page that the disk has no space for would be a SIGBUS."""
    usage = shutil.disk_usage

    def opened() -> Evervec:
        index = f"qdrant-edge://{disk.folder / 'edge'}"
        return evervec.open(tmp_path / "a.db", embedder="hashing", index=index, max_attempts=1)

    def fill() -> None:
        disk.fill(leave=1 << 20)
        if not mounts():
            monkeypatch.setattr(shutil, "disk_usage", lambda _: usage("/")._replace(free=1 << 20))

    def clear() -> None:
        disk.clear()
        monkeypatch.setattr(shutil, "disk_usage", usage)

    with small_disk(tmp_path / "disk", monkeypatch, "600m") as disk:
        if when != "before it is made":
            with opened() as ev:
                ev.add("note", "alpha", id="0")
                ev.process_all()
        fill()
        with opened() as ev:
            if when == "before a write":
                clear()
                assert ev.search("alpha", mode="semantic")
                fill()
            ev.add("note", "beta", id="1")
            with pytest.raises(IndexUnavailable, match="MiB free"):
                ev.process_all()
            job = ev.queue.status("note", "1")
            assert job is not None
            assert (job.status, job.attempts) == (Status.PENDING, 0)
            clear()
            ev.process_all()
            ev.index.maintain(0)
            assert ev.verify().clean
            assert ev.search("beta", mode="semantic")[0].id == "1"


def test_a_compaction_needs_space_for_a_copy(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make("qdrant-edge")
    world.ev.index.maintain(0)
    monkeypatch.setattr(edge_shard, "_LEAST", 0)  # so that it is due
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=64 << 20))
    with pytest.raises(IndexUnavailable, match="64 MiB free"):
        world.ev.index.maintain(0)
    monkeypatch.undo()
    world.ev.index.maintain(0)


def test_the_space_that_a_write_needs_is_counted_with_it(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make("qdrant-edge")
    version, usage = version_of(world), shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=65 << 20))
    world.ev.index.apply([change(version, RECORD, SEQ, ["small"])])
    with pytest.raises(IndexUnavailable, match="65 MiB free"):
        world.ev.index.apply([change(version, RECORD, SEQ + 1, ["large " * 200_000])])
    assert words_in(world) == {hash_text("small")}


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("lancedb://x", "lancedb", "lancedb"),
        ("qdrants://x", "qdrant_client", "qdrant"),
        ("qdrant-edge://x", "qdrant_edge", "qdrant-edge"),
    ],
)
def test_a_missing_driver_names_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, package: str, extra: str
) -> None:
    for name in list(sys.modules):
        if name.startswith(("evervec.indexes.lancedb", "evervec.indexes.qdrant")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SettingsError, match=rf"{package}: pip install 'evervec\[{extra}\]'"):
        evervec.open(tmp_path / "a.db", index=url, embedder="hashing")


def test_drivers_are_imported_when_they_are_needed() -> None:
    code = (
        "import sys, evervec; print([m for m in ('lancedb', 'qdrant_client') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
