"""What becomes of a batch: what is written, paid, counted, cached and traced."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evervec import IndexUnavailable, Kind, ProviderUnavailable, Status
from evervec.errors import StoreError
from evervec.model.records import Change
from evervec.telemetry.counters import ATTEMPTS, CHUNKS, FRESHNESS
from evervec.worker.batch import Call, Cost, Reached, Written
from support.traces import traced
from support.world import KIND, World, add_all, job_of, paragraph, step, version_of, work


def away(_: object) -> None:
    raise ProviderUnavailable("no route to host")


def test_what_calls_cost_is_shared_by_length_among_those_who_had_texts_in_them(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent: dict[Any, Any] = {}
    monkeypatch.setattr(memory.ev.provider, "record", spent.update)
    memory.ev.add(KIND, "a" * 10, id="a")
    memory.ev.add(KIND, "b" * 20, id="b")
    memory.ev.add("page", "c" * 30, id="c")
    jobs = sorted(memory.ev.pipeline.claim(5), key=lambda job: job.record_id)
    batch, _ = memory.ev.pipeline.prepare(jobs)
    memory.ev.pipeline.embed(batch)
    batch.costs = [Cost(range(3), 9, 0), Cost(range(3), 3, 12), Cost(range(1), 1, 5)]
    assert memory.ev.pipeline.write(batch).succeeded == 3
    assert spent == {("default", KIND): (3.0, 11.0), ("default", "page"): (1.0, 6.0)}
    tokens = [memory.ev.queue.history(k, i)[0].tokens for k, i in ((KIND, "a"), (KIND, "b"))]
    assert tokens == [7, 4]
    assert memory.ev.queue.history("page", "c")[0].tokens == 6


def test_shares_that_do_not_divide_add_up_to_what_was_paid(memory: World) -> None:
    add_all(memory.ev, KIND, *(letter * 7 for letter in "abc"))
    batch, _ = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(5))
    memory.ev.pipeline.embed(batch)
    batch.costs = [Cost(range(3), 1, 10)]
    memory.ev.pipeline.write(batch)
    assert [memory.ev.queue.history(KIND, id)[0].tokens for id in "012"] == [3, 4, 3]


def test_a_text_that_several_records_share_is_paid_for_by_the_first(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha", "gamma", "alpha")
    batch, _ = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(5))
    memory.ev.pipeline.embed(batch)
    batch.costs = [Cost(range(2), 1, 10)]
    memory.ev.pipeline.write(batch)
    assert [memory.ev.queue.history(KIND, id)[0].tokens for id in "012"] == [5, 5, 0]


def test_what_is_paid_before_and_after_a_write_that_failed_adds_up(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.ev.add(KIND, "alpha", id="1")
    batch, _ = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(5))
    memory.ev.pipeline.embed(batch)
    batch.costs = [Cost(range(1), 1, 7)]
    with monkeypatch.context() as patch:

        def is_away(*_: Any) -> None:
            raise IndexUnavailable("away")

        patch.setattr(memory.ev.index, "apply", is_away)
        with pytest.raises(IndexUnavailable):
            memory.ev.pipeline.write(batch)
    batch.costs = [Cost(range(1), 1, 5)]
    assert memory.ev.pipeline.write(batch).succeeded == 1
    assert memory.ev.queue.history(KIND, "1")[0].tokens == 12


def test_searches_find_it_after_so_long(memory: World) -> None:
    def freshness() -> tuple[int, float]:
        counts, total = FRESHNESS.seen().get((), ([0], 0.0))
        return sum(counts), total

    def chunks() -> tuple[float, float]:
        sums = CHUNKS.sums()
        return sums.get(("embedded",), 0.0), sums.get(("reused",), 0.0)

    (count, total), (embedded, reused) = freshness(), chunks()
    add_all(memory.ev, KIND, "alpha", paragraph("beta") + "\n\n" + paragraph("gamma"))
    memory.clock.move(7)
    work(memory.ev)
    assert freshness() == (count + 2, total + 14)
    assert chunks() == (embedded + 3, reused)
    memory.ev.add(KIND, paragraph("gamma") + "\n\n" + paragraph("delta"), id="1")
    work(memory.ev)
    assert freshness() == (count + 3, total + 14)
    assert chunks() == (embedded + 4, reused + 1)
    assert memory.ev.queue.history(KIND, "1")[-1].chunks_embedded == 1
    assert memory.ev.queue.history(KIND, "1")[-1].chunks_reused == 1


def test_only_what_was_finished_is_counted_as_found(memory: World) -> None:
    before = sum(FRESHNESS.seen().get((), ([0], 0.0))[0])
    ends = ATTEMPTS.sums()
    add_all(memory.ev, KIND, "alpha", "beta")
    jobs = memory.ev.pipeline.claim(2)
    memory.ev.queue.release(jobs[0])
    written = step(memory.ev, jobs)
    assert (written.succeeded, written.lost) == (1, 1)
    assert sum(FRESHNESS.seen()[()][0]) == before + 1
    for end, count in {"done": 1, "lost": 1, "failed": 0, "retry": 0, "released": 0}.items():
        assert ATTEMPTS.sums().get((end,), 0.0) == ends.get((end,), 0.0) + count


def test_released_for_an_outage_and_for_a_missing_loader_both_count(memory: World) -> None:
    memory.ev.register(Kind("page", load=lambda _: "text"))
    memory.ev.queue.enqueue_many("page", [1, 2])
    memory.ev.add(KIND, "alpha", id="1")
    memory.ev.pipeline.served.refresh()
    jobs = memory.ev.pipeline.claim(5)
    elsewhere = memory.tenant("default")
    elsewhere.pipeline.served.refresh()
    elsewhere.pipeline.served.models |= memory.ev.pipeline.served.models
    memory.embedder.before = away
    written = step(elsewhere, jobs)
    assert (written.released, written.failed, written.lost) == (3, 0, 0)
    assert "no loader for it" in (job_of(memory.ev, "1", "page").error or "")
    assert job_of(memory.ev, "1").error == "no route to host"


# the cache of vectors


def test_several_texts_out_of_the_cache_keep_their_own_vectors(tmp_path: Path) -> None:
    world = World(("memory", "sqlite"), tmp_path, vector_cache_mb=1)
    add_all(world.ev, KIND, "alpha", "beta", "gamma")
    work(world.ev)
    world.embedder.calls.clear()
    for id, text in enumerate(("alpha", "new", "beta", "gamma")):
        world.ev.add("page", text, id=id)
    work(world.ev)
    assert world.embedder.texts == ["new"]
    for id, text in enumerate(("alpha", "new", "beta", "gamma")):
        hit = world.ev.search(text, kind="page", mode="semantic")[0]
        assert hit.id == str(id)
        assert hit.similarity == pytest.approx(1.0)
    counts = [world.ev.queue.history("page", str(n))[0] for n in range(4)]
    assert [(a.chunks_embedded, a.chunks_reused) for a in counts] == [
        (0, 1),
        (1, 0),
        (0, 1),
        (0, 1),
    ]
    world.close()


def test_a_cache_that_cannot_be_written_does_not_stop_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(("memory", "sqlite"), tmp_path, vector_cache_mb=1)

    def full(*_: Any) -> None:
        raise StoreError("disk full")

    monkeypatch.setattr(world.ev.store.shared, "cache", full)
    add_all(world.ev, KIND, "alpha")
    assert work(world.ev).succeeded == 1
    assert "vectors were not cached: disk full" in caplog.text
    world.close()


# traces


def test_the_trace_of_a_record_says_which_job_it_was_and_why_it_waits(memory: World) -> None:
    memory.embedder.max_batch = 1
    memory.embedder.before = lambda texts: away(texts) if "beta" in texts else None
    with traced() as traces:
        with traces.tracer.start_as_current_span("the caller"):
            add_all(memory.ev, KIND, "alpha")
        jobs = memory.ev.pipeline.claim(1)
        with traces.tracer.start_as_current_span("another caller"):
            memory.ev.add(KIND, "beta", id="1")
        step(memory.ev, [*jobs, *memory.ev.pipeline.claim(1)])
        spans = [s for s in traces.all if s.name == "evervec job"]
        stages = {s.name for s in traces.all}
    assert [dict(span.attributes or {}) for span in spans] == [
        {"evervec.job_id": job_of(memory.ev, id).job_id, "evervec.kind": KIND} for id in "01"
    ]
    done, waits = spans
    assert done.status.is_ok
    assert not waits.status.is_ok
    assert waits.status.description == "no route to host"
    assert {"evervec prepare", "evervec embed", "evervec write"} <= stages


def test_what_was_never_called_for_is_given_back_without_an_error(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha")
    batch, _ = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(1))
    written = memory.ev.pipeline.write(batch)
    assert (written.released, written.succeeded) == (1, 0)
    job = job_of(memory.ev, "0")
    assert (job.status, job.error, job.attempts) == (Status.PENDING, None, 0)


def test_lost_ends_of_all_ways_are_counted_together(memory: World) -> None:
    def choke(texts: Sequence[str]) -> None:
        if "poison" in texts:
            raise ValueError("choked")

    memory.embedder.before = choke
    add_all(memory.ev, KIND, "poison", "alpha", "beta")
    jobs = memory.ev.pipeline.claim(3)
    for job in jobs[:2]:
        memory.ev.queue.release(job)
    written = step(memory.ev, jobs)
    assert (written.succeeded, written.lost) == (1, 2)


def test_the_index_is_told_all_that_it_keeps_of_a_record(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Change] = []
    apply = memory.ev.index.apply

    def watched(changes: Sequence[Change], conn: Any = None) -> Any:
        given.extend(changes)
        return apply(changes, conn)

    monkeypatch.setattr(memory.ev.index, "apply", watched)
    first, second = paragraph("alpha"), paragraph("beta")
    memory.ev.add(KIND, first, id="1")
    work(memory.ev)
    memory.ev.add(
        KIND, f"{second}\n\n{first}", id="1", metadata={"a": 1}, weight=0.5, updated_at=77.0
    )
    work(memory.ev)
    (number,) = [
        e.record for e in memory.ev.store.records.expected(None, version_of(memory.ev), 0, 9)
    ]
    change = given[-1]
    assert (change.record, change.version, change.tenant) == (
        number,
        version_of(memory.ev),
        "default",
    )
    assert (change.kind, change.id, change.seq) == (KIND, "1", job_of(memory.ev, "1").seq)
    assert (change.metadata, change.weight, change.updated_at) == ({"a": 1}, 0.5, 77.0)
    assert [(point.position, point.text) for point in change.points] == [(0, second)]
    assert list(change.kept.values()) == [1]


def test_a_result_says_of_which_text_of_its_record_it_is(memory: World) -> None:
    text = memory.ev.add(KIND, "alpha", id="1")
    memory.ev.add(KIND, "beta", id="2", boxed=True)
    memory.ev.queue.enqueue(KIND, "1")  # a larger number, for the same text
    batch, _ = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(5))
    memory.ev.pipeline.embed(batch)
    finishes = batch.settle("w", memory.clock.now).finishes
    read = {f.job.record_id: (f.text_seq, f.seq > text.seq) for f in finishes}
    assert read == {"1": (text.seq, True), "2": (None, True)}


def test_jobs_of_a_tenant_that_used_up_its_quota_are_given_back(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha")
    memory.tenant("other").add(KIND, "beta", id="1")
    jobs = memory.ev.pipeline.claim(5)
    memory.ev.pipeline._used_up = {"default"}
    assert step(memory.ev, jobs).succeeded == 1
    job = job_of(memory.ev, "0")
    assert (job.status, job.attempts) == (Status.PENDING, 0)
    jobs = memory.ev.pipeline.claim(5)
    assert [job.tenant for job in jobs] == ["default"], "a claim asks the store again"
    memory.ev.pipeline._used_up = {"default"}
    assert step(memory.ev, jobs).processed == 0
    assert job_of(memory.ev, "0").status is Status.PENDING


def test_all_tenants_that_used_up_their_quota_since_a_claim_are_left_alone(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory.ev.store.tenants, "hold_spent", lambda tenants: tenants)
    monkeypatch.setattr(memory.ev.provider, "record", lambda spent: None)
    for tenant in ("a", "b"):
        memory.tenant(tenant).add(KIND, tenant, id="1")
    for job in memory.ev.pipeline.claim(5):
        batch, _ = memory.ev.pipeline.prepare([job])
        memory.ev.pipeline.embed(batch)
        batch.costs = [Cost(range(1), 1, 5)]
        assert memory.ev.pipeline.write(batch).succeeded == 1
    assert memory.ev.pipeline._used_up == {"a", "b"}


def test_a_row_that_its_loader_no_longer_has_is_gone_with_its_points(memory: World) -> None:
    rows: dict[str, str] = {"1": "alpha"}
    memory.ev.register(Kind("page", load=rows.get))
    memory.ev.queue.enqueue("page", 1)
    work(memory.ev)
    assert memory.ev.get("page", "1") is not None
    rows.clear()
    memory.ev.queue.enqueue("page", 1)
    assert work(memory.ev).succeeded == 1
    assert memory.ev.get("page", "1") is None
    assert memory.ev.search("alpha") == []
    assert memory.ev.verify().complete


def test_records_that_are_ready_are_split_off_with_their_share(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha", "gamma delta", "epsilon")
    batch, _ = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(5))
    first, second, third = sorted(batch.items, key=lambda item: item.job.record_id)
    assert batch.characters == len("alphagamma deltaepsilon")
    assert not batch.split(), "nothing is ready"
    batch.vectors[batch.rows[next(iter(first.fresh))]] = memory.embedder.embed(["alpha"])[0]
    second.error = "no"
    batch.oversize, batch.calls_left, batch.outage = True, 2, ProviderUnavailable("away")
    batch.gone, batch.counted = [first.job], {7}
    batch.mark("load", 5)
    (part,) = batch.split()
    assert (part.items, batch.items) == ([first, second], [third])
    assert (part.characters, batch.characters) == (len("alphagamma delta"), len("epsilon"))
    assert (part.oversize, part.calls_left, part.outage) == (False, 0, None)
    assert (part.gone, part.counted, part.marks) == ([], set(), batch.marks)
    part.mark("write", 6)
    assert "write" not in batch.marks
    third.waits = "for its turn"
    batch.characters = 2  # as after a part that was larger than what is left
    assert [p.items for p in batch.split()] == [[third]]
    assert batch.characters == 0


def test_a_record_of_which_a_text_was_refused_is_ready(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha", "gamma")
    batch, _ = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(5))
    batch.errors[0] = ValueError("no")
    (part,) = batch.split()
    assert [batch.rows[hash] for item in part.items for hash in item.fresh] == [0]


def test_stages_begin_with_their_first_part_and_end_with_their_last(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha", "gamma")
    batch, _ = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(5))
    assert batch.settle("w", 1000.0).finishes == []
    assert batch.embedded_at is None, "nothing was embedded"
    now = time.time_ns()
    for began, ended in ((now - 4 * 10**9, now - 3 * 10**9), (now - 9 * 10**9, now - 5 * 10**9)):
        batch.take(Call(range(0), began, ended))
    assert batch.marks["embed"] == (now - 9 * 10**9, now - 3 * 10**9)
    batch.settle("w", 1000.0)
    assert batch.embedded_at == pytest.approx(997, abs=0.9)
    for began in (20, 10, 30):
        batch.mark("write", began)
    assert batch.marks["write"][0] == 10
    assert batch.marks["write"][1] >= now


def test_what_a_worker_did_is_counted_by_its_end() -> None:
    written = Written(succeeded=1, failed=2, retried=3, released=4, lost=5)
    assert written.by_outcome() == {"done": 1, "failed": 2, "retry": 3, "released": 4, "lost": 5}


def test_only_a_record_that_was_embedded_says_when(memory: World) -> None:
    memory.ev.add(KIND, "alpha", id="1")
    work(memory.ev)
    memory.ev.add(KIND, "alpha", id="1", metadata={"a": 1})
    memory.ev.add(KIND, "gamma", id="2")
    batch, _ = memory.ev.pipeline.prepare(memory.ev.pipeline.claim(5))
    memory.ev.pipeline.embed(batch)
    ends = {f.job.record_id: f.embedded_at for f in batch.settle("w", 1000.0).finishes}
    assert ends == {"1": None, "2": pytest.approx(1000, abs=9)}


def test_progress_adds_up_over_batches(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, prepare, room = Reached(), memory.ev.pipeline.prepare, []

    def prepared(jobs: Sequence[Any], characters: int) -> Any:
        room.append(characters)
        return prepare(jobs, characters)

    monkeypatch.setattr(memory.ev.pipeline, "prepare", prepared)
    for count in (2, 3):
        add_all(memory.ev, KIND, *(f"text {count} {n}" for n in range(count)))
        (batch,) = memory.ev.pipeline.prepare_all(memory.ev.pipeline.claim(5))
        reached.prepare(batch)
        memory.ev.pipeline.embed(batch)
        memory.ev.pipeline.write(batch)
    assert (reached.jobs, reached.chunks) == (5, 5)
    assert room == [memory.ev.pipeline.memory] * 2
