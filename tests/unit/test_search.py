"""Search: modes, fusion, re-scoring, and what happens without vectors."""

import logging
from typing import Any

import pytest

from evervec import (
    Evervec,
    InvalidArgument,
    JobFailed,
    Kind,
    ProviderUnavailable,
    RateLimited,
    Rescore,
    WaitTimeout,
)
from evervec.indexes.base import Matches
from evervec.search.ranking import Evidence
from support.vectors import vector
from support.world import DAY, KIND, World, add_all, fail_for_good, paragraph, work


def away(*_: object) -> None:
    raise ProviderUnavailable("the provider is away")


def test_each_mode_says_how_it_found(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha beta", "gamma delta")
    work(memory.ev)
    for mode in ("hybrid", "semantic", "text"):
        hits = memory.ev.search("alpha", mode=mode)
        assert hits.via == mode
        assert hits[0].id == "0"
        assert hits.version == (None if mode == "text" else "hashing-64")


def test_a_hit_says_what_found_it(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha beta", "gamma delta")
    work(memory.ev)
    memory.ev.add(KIND, "alpha not embedded yet", id="new")
    hits = {h.id: h for h in memory.ev.search("alpha")}
    assert hits["0"].via == "hybrid"
    assert hits["1"].via == "semantic"
    assert hits["new"].via == "text"
    assert hits["new"].similarity is None
    assert hits["0"].similarity is not None


def test_a_hit_shows_its_record(memory: World) -> None:
    memory.ev.add(KIND, "alpha beta", id="1", title="T", metadata={"a": [1]}, weight=0.5)
    work(memory.ev)
    (hit,) = memory.ev.search("alpha")
    assert (hit.kind, hit.id, hit.title, hit.text) == (KIND, "1", "T", "alpha beta")
    assert hit.metadata == {"a": [1]}


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("days", [0.0, 1.0, 90.0, 365.0])
def test_relevance_is_the_documented_formula(memory: World, weight: float, days: float) -> None:
    memory.ev.register(Kind(KIND, rescore="recent"))
    memory.ev.add(KIND, "alpha beta", id="1", weight=weight)
    work(memory.ev)
    memory.clock.move(days * DAY)
    (hit,) = memory.ev.search("alpha", mode="semantic")
    similarity = float(vector("alpha beta") @ vector("alpha"))
    assert hit.similarity == pytest.approx(similarity, abs=1e-6)
    expected = similarity * (0.6 + 0.3 * weight) * 1 / (1 + days / 90)
    assert hit.relevance == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
def test_age_does_not_count_unless_a_kind_asks_for_it(memory: World, weight: float) -> None:
    memory.ev.add(KIND, "alpha", id="1", weight=weight)
    work(memory.ev)
    memory.clock.move(3650 * DAY)
    (hit,) = memory.ev.search("alpha", mode="semantic")
    assert hit.relevance == pytest.approx(2 / 3 + weight / 3, rel=1e-5)


def test_age_runs_from_updated_at_and_the_future_is_no_age(memory: World) -> None:
    memory.ev.register(Kind(KIND, rescore=Rescore()))
    memory.ev.add(KIND, "alpha", id="old", updated_at=memory.clock.now - 90 * DAY)
    memory.ev.add(KIND, "alpha", id="future", updated_at=memory.clock.now + 90 * DAY)
    work(memory.ev)
    hits = {h.id: h.relevance for h in memory.ev.search("alpha", mode="semantic")}
    assert hits["old"] == pytest.approx(0.45, rel=1e-5)
    assert hits["future"] == pytest.approx(0.9, rel=1e-5)


def test_a_kind_may_re_score_in_its_own_way(memory: World) -> None:
    memory.ev.register(Kind("news", rescore=Rescore(base=0.1, gain=0.8, days=2)))
    for kind in ("news", KIND):
        memory.ev.add(kind, "alpha", id="1", weight=0.5)
    work(memory.ev)
    memory.clock.move(4 * DAY)
    hits = {h.kind: h.relevance for h in memory.ev.search("alpha", mode="semantic")}
    assert hits["news"] == pytest.approx((0.1 + 0.8 * 0.5) / 3, rel=1e-5)
    assert hits[KIND] == pytest.approx(2 / 3 + 0.5 / 3, rel=1e-5)


def test_hits_are_ordered_by_relevance_and_not_by_similarity(memory: World) -> None:
    memory.ev.add(KIND, "alpha", id="exact but light", weight=0.0)
    memory.ev.add(KIND, "alpha alpha beta", id="near and heavy", weight=1.0)
    work(memory.ev)
    hits = memory.ev.search("alpha", mode="semantic")
    assert [h.id for h in hits] == ["near and heavy", "exact but light"]
    relevance = [h.relevance for h in hits]
    assert relevance == sorted(relevance, reverse=True)


def test_more_candidates_than_asked_for_are_fetched_before_re_scoring(memory: World) -> None:
    """The third nearest is the most relevant; only over-fetching can find it for k=1."""
    memory.ev.add(KIND, "alpha", id="a", weight=0.0)
    memory.ev.add(KIND, "alpha alpha alpha alpha beta", id="b", weight=0.0)
    memory.ev.add(KIND, "alpha alpha beta", id="c", weight=1.0)
    work(memory.ev)
    assert [h.id for h in memory.ev.search("alpha", 1, mode="semantic")] == ["c"]


def test_vectors_and_words_count_as_independent_evidence() -> None:
    near = Matches([1, 2, 4], [0.8, 0.4, 0.2], [b""] * 3)
    texts = [(3, 4.0), (2, 3.0), (1, 2.0)]
    evidence = Evidence("hybrid", near, texts, share=lambda record: 0.5 if record == 3 else 1.0)
    every = {
        1: pytest.approx(1 - (1 - 0.8) * (1 - 0.4 * 2 / 4)),
        2: pytest.approx(1 - (1 - 0.4) * (1 - 0.4 * 3 / 4)),
        3: pytest.approx(0.4),  # it has no vectors
        4: pytest.approx(0.2),
    }
    assert evidence.within(3) == every
    assert evidence.within(1) == {record: every[record] for record in (1, 3)}
    evidence.cosines[3] = 0.1  # of a record that is not among the nearest
    assert evidence.within(3)[3] == pytest.approx(1 - (1 - 0.1) * (1 - 0.4))
    assert Evidence("hybrid").within(3) == {}
    assert Evidence("semantic", near).within(2) == {
        1: pytest.approx(0.8), 2: pytest.approx(0.4)
    }  # fmt: skip


def test_a_relevance_is_from_0_to_1_whatever_the_cosine() -> None:
    near = Matches([1, 2], [1.0000001, -0.3], [b""] * 2)
    for via, texts in (("semantic", []), ("hybrid", [(2, 1.0)])):
        found = Evidence(via, near, texts).within(2)
        assert found[1] == 1.0
        assert found[2] == pytest.approx(0.8 if texts else 0.0)


def test_a_hybrid_relevance_is_the_combined_score_re_scored(memory: World) -> None:
    memory.ev.add(KIND, "alpha beta", id="1", weight=0.5)
    work(memory.ev)
    (hit,) = memory.ev.search("alpha gamma")
    near = float(vector("alpha beta") @ vector("alpha gamma"))
    assert hit.relevance == pytest.approx((1 - (1 - near) * 0.6) * (2 / 3 + 0.5 / 3), rel=1e-5)


@pytest.mark.parametrize("k", [0, -1, True, 2.5, "10", None])
def test_a_k_below_one_or_of_another_type_is_refused(memory: World, k: Any) -> None:
    with pytest.raises(InvalidArgument, match="k must be"):
        memory.ev.search("alpha", k)


@pytest.mark.parametrize("mode", ["fuzzy", "", None])
def test_an_unknown_mode_is_refused_with_the_known_ones(memory: World, mode: Any) -> None:
    with pytest.raises(InvalidArgument, match="hybrid, semantic, text"):
        memory.ev.search("alpha", mode=mode)


@pytest.mark.parametrize("query", ["", "  ", "\0", None, 7])
def test_a_query_that_asks_nothing_is_refused(memory: World, query: Any) -> None:
    with pytest.raises(InvalidArgument, match="query"):
        memory.ev.search(query)


def test_k_bounds_the_hits(memory: World) -> None:
    add_all(memory.ev, KIND, *(f"alpha {n}" for n in range(30)))
    work(memory.ev)
    for k in (1, 7, 30, 1000):
        assert len(memory.ev.search("alpha", k)) == min(k, 30)


@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
def test_text_answers_while_the_provider_is_away(
    memory: World, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    add_all(memory.ev, KIND, "alpha", "beta")
    work(memory.ev)
    memory.embedder.before = away
    with caplog.at_level(logging.WARNING):
        hits = memory.ev.search("alpha", mode=mode)
    assert (hits.via, hits.version) == ("text", None)
    assert [(h.id, h.similarity, h.via) for h in hits] == [("0", None, "text")]
    assert "search uses text only: the provider is away" in caplog.text


def test_text_answers_while_the_provider_wants_a_pause(memory: World) -> None:
    def limited(_: object) -> None:
        raise RateLimited(5)

    add_all(memory.ev, KIND, "alpha")
    work(memory.ev)
    memory.embedder.before = limited
    assert memory.ev.search("alpha").via == "text"


@pytest.mark.parametrize("error", [ConnectionError("refused"), TimeoutError(), OSError("reset")])
def test_text_answers_when_the_embedder_raises_something_of_its_own(
    memory: World, error: Exception
) -> None:
    def broken(_: object) -> None:
        raise error

    add_all(memory.ev, KIND, "alpha")
    work(memory.ev)
    memory.embedder.before = broken
    hits = memory.ev.search("alpha")
    assert (hits.via, [h.id for h in hits]) == ("text", ["0"])


def test_text_answers_without_an_embedder(memory: World) -> None:
    noop = memory.without_embedder()
    noop.add(KIND, "alpha", id="1")
    assert noop.process_all().processed == 0
    hits = noop.search("alpha")
    assert (hits.via, [h.id for h in hits]) == ("text", ["1"])
    assert noop.queue.stats().pending == 1
    work(memory.ev)
    assert memory.ev.search("alpha").via == "hybrid"


def test_an_empty_store_answers_with_nothing(memory: World) -> None:
    for mode in ("hybrid", "semantic", "text"):
        assert list(memory.ev.search("alpha", mode=mode)) == []


def test_kinds_are_searched_together_or_one_alone(memory: World) -> None:
    for kind in ("a", "b", "c"):
        memory.ev.add(kind, f"alpha {kind}", id=kind)
    work(memory.ev)
    for mode in ("hybrid", "semantic", "text"):
        assert {h.kind for h in memory.ev.search("alpha", mode=mode)} == {"a", "b", "c"}
        assert [h.kind for h in memory.ev.search("alpha", kind="b", mode=mode)] == ["b"]


def test_after_a_ticket_means_not_older_than_it(memory: World) -> None:
    ticket = memory.ev.add(KIND, "alpha", id="1")
    with pytest.raises(WaitTimeout, match="worker"):
        memory.ev.search("alpha", after=ticket, wait=0)
    work(memory.ev)
    assert [h.id for h in memory.ev.search("alpha", after=ticket, wait=0)] == ["1"]


def test_after_a_ticket_waits_for_a_worker(memory: World) -> None:
    with memory.ev.worker():
        ticket = memory.ev.add(KIND, "alpha", id="1")
        hits = memory.ev.search("alpha", mode="semantic", after=ticket, wait=30)
        assert [h.id for h in hits] == ["1"]


def test_after_the_ticket_of_a_dead_letter_says_so(memory: World) -> None:
    ticket = memory.ev.add(KIND, "alpha", id="1")
    fail_for_good(memory.ev)
    with pytest.raises(JobFailed, match="it is bad"):
        memory.ev.search("alpha", after=ticket)


def test_a_text_hit_shows_the_piece_that_holds_most_of_the_words(memory: World) -> None:
    parts = [paragraph(words) for words in ("alpha", "beta gamma", "delta")]
    memory.ev.add(KIND, "\n\n".join(parts), id="1")
    (hit,) = memory.ev.search("beta gamma", mode="text")
    assert hit.text == parts[1]


def test_the_text_of_a_hit_is_of_the_present_version(memory: World) -> None:
    memory.ev.add(KIND, "alpha beta", id="1")
    work(memory.ev)
    memory.ev.add(KIND, "something else entirely", id="1")
    (hit,) = memory.ev.search("alpha beta", mode="semantic")
    assert hit.text == "something else entirely"


def test_hits_are_a_list(memory: World) -> None:
    def ids(ev: Evervec) -> list[str]:
        return [h.id for h in ev.search("alpha")[:1]]

    add_all(memory.ev, KIND, "alpha")
    assert ids(memory.ev) == ["0"]


def test_a_search_is_right_although_others_write_and_search_meanwhile(memory: World) -> None:
    """Another thread's write and search, held to the moment in which this one looks."""
    add_all(memory.ev, KIND, "alpha", "beta", "gamma")
    memory.ev.search("alpha", mode="text")
    look = memory.ev.store.records.candidates

    def interrupted(tenant: str, records: Any) -> Any:
        memory.ev.store.records.candidates = look  # type: ignore[method-assign]
        memory.ev.delete(KIND, "2")
        memory.ev.search("gamma", mode="text")
        return look(tenant, records)

    memory.ev.store.records.candidates = interrupted  # type: ignore[method-assign]
    hits = memory.ev.search("alpha beta", mode="text")
    assert {h.id for h in hits} == {"0", "1"}


def test_times_that_change_without_a_job_count_at_once(memory: World) -> None:
    memory.ev.register(Kind(KIND, rescore="recent"))
    memory.ev.add(KIND, "alpha", id="1")
    work(memory.ev)
    fresh = memory.ev.search("alpha", mode="semantic")[0].relevance
    memory.ev.add(KIND, "alpha", id="1", updated_at=memory.clock.now - 90 * DAY)
    assert memory.ev.search("alpha", mode="semantic")[0].relevance == pytest.approx(fresh / 2)


def test_what_another_opening_wrote_counts_at_once(shared_world: World) -> None:
    mine, theirs = shared_world.ev, shared_world.open()
    mine.add(KIND, "alpha", id="1", weight=1.0)
    work(mine)
    assert theirs.search("alpha")[0].relevance == pytest.approx(1.0)
    mine.add(KIND, "alpha", id="1", weight=0.0)
    assert theirs.search("alpha")[0].relevance == pytest.approx(2 / 3)
    mine.delete(KIND, "1")
    assert theirs.search("alpha") == []
