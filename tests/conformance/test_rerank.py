"""Reranked searches, with the same meaning on every store and index."""

import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from evervec import (
    Hits,
    InvalidArgument,
    InvalidInput,
    Kind,
    ProviderUnavailable,
    RateLimited,
    Reranker,
    deadline,
)
from evervec.errors import DeadlineExceeded
from support.vectors import vector
from support.world import DAY, KIND, World, add_all, paragraph, work


class LastFirst:
    """Scores texts by the number at their end."""

    name = "by number"

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        self.calls.append((query, list(texts)))
        return [int(text.split()[-1]) / 100 for text in texts]


class Failing:
    """Raises or returns what the test says."""

    name = "broken"

    def __init__(self, what: Any) -> None:
        self.what = what
        self.calls = 0

    def rerank(self, query: str, texts: Sequence[str]) -> Any:
        self.calls += 1
        if isinstance(self.what, BaseException):
            raise self.what
        return self.what


def ids(hits: Hits) -> list[str]:
    return [hit.id for hit in hits]


def numbered(count: int) -> list[str]:
    return [f"alpha {n}" for n in range(count)]


@pytest.mark.every_index
def test_the_reranker_orders_the_hits(world: World) -> None:
    ev = world.ev
    for n in range(20):
        ev.add(KIND, f"alpha {n}", id=str(n), title=f"no {n}", metadata={"even": n % 2 == 0})
    work(ev)
    reranker = LastFirst()
    assert isinstance(reranker, Reranker)
    hits = ev.search("alpha", 5, rerank=reranker, filter={"even": True})
    assert ids(hits) == ["18", "16", "14", "12", "10"]
    assert [hit.relevance for hit in hits] == pytest.approx([0.18, 0.16, 0.14, 0.12, 0.10])
    assert (hits.reranked, hits.rerank_error) == (True, None)
    ((query, texts),) = reranker.calls
    assert query == "alpha"
    assert set(texts) == {f"no {n}\nalpha {n}" for n in range(0, 20, 2)}
    for mode in ("semantic", "text"):
        assert ids(ev.search("alpha", 2, mode=mode, rerank=reranker)) == ["19", "18"]
    both = ev.search("alpha", 2, vector=vector("alpha").tolist(), rerank=reranker)
    assert ids(both) == ["19", "18"]
    assert ids(ev.search("alpha", 2, rerank=reranker, fields=["title"])) == ["19", "18"]


def test_only_the_first_candidates_are_reranked(memory: World) -> None:
    ev = memory.open(rerank_candidates=4)
    add_all(ev, KIND, *numbered(30))
    work(ev)
    plain = ids(ev.search("alpha 7", 30, mode="semantic"))
    reranker = LastFirst()
    hits = ev.search("alpha 7", 2, mode="semantic", rerank=reranker)
    ((_, texts),) = reranker.calls
    assert [text.split()[1] for text in texts] == plain[:4]
    assert ids(hits) == sorted(plain[:4], key=int)[::-1][:2]


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "text"])
def test_pages_follow_each_other(world: World, mode: str) -> None:
    ev = world.open(rerank_candidates=12)
    add_all(ev, KIND, *numbered(60))
    work(ev)
    pages = [
        ids(ev.search("alpha 3", 5, mode=mode, offset=n, rerank=LastFirst()))
        for n in range(0, 60, 5)
    ]
    seen = [id for page in pages for id in page]
    assert len(seen) == len(set(seen))
    assert set(seen) == {str(n) for n in range(60)}


def test_pages_above_a_threshold_miss_no_hit_between_them(memory: World) -> None:
    """They end with the first candidates of which one is not relevant enough."""
    ev = memory.open(rerank_candidates=4)
    add_all(ev, KIND, *numbered(30))
    work(ev)
    plain = ids(ev.search("alpha 7", 30, mode="semantic"))

    class Rejecting(LastFirst):
        def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
            return [float(text != f"alpha {plain[1]}") for text in texts]

    asked: Any = {"mode": "semantic", "rerank": Rejecting(), "min_relevance": 0.5}
    pages = [ids(ev.search("alpha 7", 2, offset=n, **asked)) for n in range(0, 12, 2)]
    assert [id for page in pages for id in page] == [plain[0], *plain[2:4]]


def test_the_reranked_passage_is_the_chunk_that_the_hit_shows(memory: World) -> None:
    text = "\n\n".join([paragraph("alpha"), paragraph("beta"), f"{paragraph('gamma')} 3"])
    memory.ev.add(KIND, text, id="1", title="Guide")
    work(memory.ev)

    class Listening(LastFirst):
        def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
            self.calls.append((query, list(texts)))
            return [0.5]

    reranker = Listening()
    (hit,) = memory.ev.search(paragraph("beta"), rerank=reranker)
    assert reranker.calls == [(paragraph("beta"), [f"Guide\n{hit.text}"])]
    assert hit.text.startswith("beta")


def test_an_explanation_adds_up_and_keeps_what_was_before(memory: World) -> None:
    ev = memory.ev
    ev.register(Kind("aged", rescore="recent"))
    for n in range(8):
        ev.add("aged" if n % 2 else KIND, f"alpha {n * 10}", id=str(n), weight=n / 8)
    work(ev)
    memory.clock.move(30 * DAY)
    before = {hit.id: hit for hit in ev.search("alpha", explain=True, rerank=False)}
    hits = ev.search("alpha", explain=True, rerank=LastFirst())
    assert all(a.relevance >= b.relevance for a, b in pairwise(hits))
    for hit in hits:
        why, old = hit.explanation, before[hit.id].explanation
        assert why is not None
        assert old is not None
        assert why.reranked is not None
        assert why.parts.keys() == {"rerank"}
        assert sum(why.parts.values()) == pytest.approx(hit.relevance, abs=1e-9)
        score = why.reranked.score * why.weight_factor * why.age_factor
        assert score == pytest.approx(hit.relevance, abs=1e-9)
        assert why.reranked.reranker == "by number"
        assert why.reranked.score == int(hit.text.split()[1]) / 100
        assert why.reranked.parts == pytest.approx(old.parts, abs=1e-9)
        assert why.reranked.relevance == pytest.approx(before[hit.id].relevance, abs=1e-9)
        assert old.reranked is None


def test_thresholds_groups_and_diversity_apply_to_reranked_hits(memory: World) -> None:
    ev = memory.ev
    for n in range(12):
        ev.add(KIND, f"alpha {n}", id=str(n), metadata={"third": n % 3})
    work(ev)
    reranker = LastFirst()
    assert ids(ev.search("alpha", rerank=reranker, min_relevance=0.095)) == ["11", "10"]
    grouped = ev.search("alpha", 2, group_by="third", rerank=reranker)
    assert ids(grouped) == ["11", "8", "10", "7", "9", "6"]
    diverse = ev.search("alpha", 12, diversity=0.5, rerank=reranker)
    assert ids(diverse)[0] == "11"
    assert len(set(ids(diverse))) == 12
    assert all(hit.relevance == pytest.approx(int(hit.id) / 100) for hit in diverse)
    near = ev.search("alpha 5", rerank=reranker, min_similarity=0.99, mode="semantic")
    assert ids(near) == ["5"]


def test_logits_become_numbers_from_0_to_1(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha 0", "alpha 1", "alpha 2")
    work(memory.ev)
    given = Failing([-1e308, 0.0, 1e308])
    hits = memory.ev.search("alpha", rerank=given)
    assert [hit.relevance for hit in hits] == pytest.approx([1.0, 0.5, 0.0])
    declared = Failing([0.0, 0.0, 0.0])
    declared.logits = True  # type: ignore[attr-defined]
    equal = memory.ev.search("alpha", rerank=declared)
    assert [hit.relevance for hit in equal] == [0.5] * 3
    assert ids(equal) == ids(memory.ev.search("alpha"))


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (ProviderUnavailable("at sk-1"), "broken is unavailable"),
        (RateLimited(1e300, "sk-1"), "the rate limit of broken is reached"),
        (InvalidInput((), "sk-1"), "broken rejected the texts"),
        (KeyError("sk-1"), "broken failed"),
        (SystemExit("sk-1"), "broken failed"),
        (KeyboardInterrupt("sk-1"), "broken failed"),
        (TimeoutError("sk-1"), "broken did not respond within 2 s"),
        ([0.1], "broken gave an invalid answer"),
        ([0.1, 0.2, float("nan")], "broken gave an invalid answer"),
        ([0.1, 0.2, float("inf")], "broken gave an invalid answer"),
        ([True, False, True], "broken gave an invalid answer"),
        ("abc", "broken gave an invalid answer"),
        (None, "broken gave an invalid answer"),
    ],
)
def test_a_failure_leaves_the_order_and_every_option(
    memory: World, caplog: pytest.LogCaptureFixture, what: Any, why: str
) -> None:
    ev = memory.ev
    add_all(ev, KIND, "alpha beta", "alpha", "beta gamma")
    work(ev)
    for options in ({}, {"min_relevance": 0.5}, {"diversity": 0.7}, {"explain": True}, {"k": 1}):
        plain = ev.search("alpha beta", rerank=False, **options)
        hits = ev.search("alpha beta", rerank=Failing(what), **options)
        assert list(hits) == list(plain)
        assert (hits.reranked, hits.rerank_error) == (False, why)
    assert "sk-1" not in caplog.text or isinstance(
        what, ProviderUnavailable | RateLimited | InvalidInput
    )


def test_a_failing_reranker_is_left_alone_for_a_while(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha")
    broken = Failing(ProviderUnavailable("away"))
    whys = {memory.ev.search("alpha", rerank=broken).rerank_error for _ in range(5)}
    assert whys == {"broken is unavailable"}
    assert broken.calls == 1
    picky = Failing(InvalidInput((), "no"))  # says nothing of other texts
    for _ in range(3):
        memory.ev.search("alpha", rerank=picky)
    assert picky.calls == 3


def test_a_reranker_that_never_returns_does_not_hold_a_search(memory: World) -> None:
    ev = memory.open(rerank_seconds=0.02, backoff_seconds=0.0)
    add_all(ev, KIND, "alpha")
    free = threading.Event()

    class Stuck:
        name = "stuck"
        calls = 0

        def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
            self.calls += 1
            free.wait()
            return [1.0] * len(texts)

    stuck = Stuck()
    try:
        whys = [ev.search("alpha", rerank=stuck).rerank_error for _ in range(8)]
    finally:
        free.set()
    assert whys[0] == "stuck did not respond within 0.02 s"
    assert whys[-1] == "stuck is still busy with earlier searches"
    assert stuck.calls == 4


def test_the_deadline_of_the_search_limits_the_reranker_too(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha 1")
    free = threading.Event()

    class Slow(LastFirst):
        def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
            if not free.is_set():
                free.wait(30)
            return super().rerank(query, texts)

    slow = Slow()
    with deadline(1.0):
        hits = memory.ev.search("alpha", rerank=slow)
    free.set()
    assert ids(hits) == ["0"]
    assert not hits.reranked
    assert memory.ev.search("alpha", rerank=slow).reranked  # too little time was not its fault
    with deadline(0.0), pytest.raises(DeadlineExceeded):
        memory.ev.search("alpha", rerank=slow)


def test_what_a_search_must_say(memory: World) -> None:
    ev = memory.ev
    add_all(ev, KIND, "alpha 1")
    work(ev)
    with pytest.raises(InvalidArgument, match="rerank needs a query"):
        ev.search(vector=vector("alpha").tolist(), rerank=LastFirst())
    with pytest.raises(InvalidArgument, match="no reranker is set"):
        ev.search("alpha", rerank=True)
    hits = ev.search("alpha")
    assert (hits.reranked, hits.rerank_error) == (False, None)
    nothing = ev.search("alpha", kind="other", rerank=LastFirst())
    assert (list(nothing), nothing.rerank_error) == ([], None)
