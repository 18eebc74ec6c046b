"""What a search can be asked beyond its query, with the same meaning on every store and index."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evervec import Hits, InvalidArgument, Kind, MatchedWord
from support.vectors import vector
from support.world import DAY, KIND, World, add_all, paragraph, work

WORDS = ("alpha", "beta", "gamma", "delta", "omega")


def ids(hits: Hits) -> list[str]:
    return [hit.id for hit in hits]


def assert_adds_up(hits: Hits) -> None:
    for hit in hits:
        why = hit.explanation
        assert why is not None
        assert sum(why.parts.values()) == pytest.approx(hit.relevance, abs=1e-9)
        score = 1 - (1 - why.meaning) * (1 - why.words)
        if why.reranked is not None:
            before = why.reranked.relevance
            assert sum(why.reranked.parts.values()) == pytest.approx(before, abs=1e-9)
            assert score * why.weight_factor * why.age_factor == pytest.approx(before, abs=1e-9)
            score = why.reranked.score
        assert score * why.weight_factor * why.age_factor == pytest.approx(hit.relevance, abs=1e-9)
        assert why.similarity == hit.similarity


# explain
@pytest.mark.every_index
def test_a_hit_explains_its_relevance(world: World) -> None:
    ev = world.ev
    ev.register(Kind(KIND, rescore="recent"))
    ev.add(KIND, "Alpha and betas", id="1", weight=0.5)
    ev.add(KIND, "gamma", id="2")
    work(ev)
    ev.add(KIND, "alpha not embedded", id="3")
    world.clock.move(9 * DAY)
    hits = ev.search("alpha beta", explain=True)
    assert_adds_up(hits)
    why = {hit.id: hit.explanation for hit in hits}
    first = why["1"]
    assert first is not None
    assert first.matched == (MatchedWord("Alpha", 0, 5), MatchedWord("betas", 10, 15))
    assert (first.semantic_rank, first.position, first.start, first.end) == (1, 0, 0, 15)
    assert first.weight == 0.5
    assert first.weight_factor == pytest.approx(0.75)
    assert first.age_days == pytest.approx(9)
    assert first.age_factor == pytest.approx(1 / 1.1)
    assert first.seq == ev.get(KIND, "1").seq  # type: ignore[union-attr]
    assert first.version == "hashing-64"
    assert (why["2"].text_rank, why["2"].words) == (None, 0.0)  # type: ignore[union-attr]
    third = why["3"]
    assert third is not None
    assert (third.similarity, third.semantic_rank, third.position) == (None, None, None)
    assert {first.text_rank, third.text_rank} == {1, 2}


def test_a_search_that_is_not_explained_has_the_same_hits(world: World) -> None:
    add_all(world.ev, KIND, "alpha beta", "alpha", "beta")
    work(world.ev)
    plain, explained = world.ev.search("alpha"), world.ev.search("alpha", explain=True)
    assert [hit.explanation for hit in plain] == [None, None, None]
    assert [(h.id, h.relevance) for h in plain] == [(h.id, h.relevance) for h in explained]


def test_an_explanation_says_under_which_headings_its_chunk_is(memory: World) -> None:
    parts = ["# Guide", paragraph("alpha"), "## Part", paragraph("beta"), paragraph("gamma")]
    text = "\n\n".join(parts)
    memory.ev.add(KIND, text, id="1")
    work(memory.ev)
    (hit,) = memory.ev.search(paragraph("gamma"), mode="semantic", explain=True)
    why = hit.explanation
    assert why is not None
    assert why.position is not None
    assert why.position > 0
    assert text[why.start : why.end] == hit.text
    assert why.headings == ("Guide", "Part")


_texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)


class ByLength:
    """Prefers long texts."""

    name = "by length"

    def rerank(self, query: str, texts: Any) -> list[float]:
        return [1 - 1 / (1 + len(text)) for text in texts]


_options = st.fixed_dictionaries(
    {"k": st.sampled_from([1, 3, 20])},
    optional={
        "kind": st.sampled_from([KIND, ["aged"], [KIND, "aged", "absent"]]),
        "diversity": st.sampled_from([0.0, 0.4, 1.0]),
        "group_by": st.sampled_from(["length", "absent"]),
        "offset": st.sampled_from([1, 5]),
        "vector": _texts.map(vector),
        "min_relevance": st.floats(0, 1),
        "rerank": st.just(ByLength()),
        "filter": st.just({"length": {"gt": 1}}),
        "fields": st.lists(st.sampled_from(["text", "metadata"])),
    },
)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    records=st.lists(st.tuples(_texts, st.floats(0, 1), st.booleans()), min_size=1, max_size=8),
    query=_texts,
    mode=st.sampled_from(["hybrid", "semantic", "text"]),
    days=st.floats(0, 1000),
    options=_options,
)
def test_parts_add_up_and_hits_are_in_order(
    memory: World, records: list[Any], query: str, mode: str, days: float, options: dict[str, Any]
) -> None:
    ev = memory.ev.of(f"tenant {memory.clock.now} {len(records)}")
    ev.register(Kind("aged", rescore="recent"))
    for n, (text, weight, aged) in enumerate(records):
        kind, metadata = "aged" if aged else KIND, {"length": len(text.split())}
        ev.add(kind, text, id=str(n), weight=weight, metadata=metadata)
    work(memory.ev)
    memory.clock.move(days * DAY)
    hits = ev.search(query, mode=mode, explain=True)
    assert_adds_up(hits)
    assert all(a.relevance >= b.relevance for a, b in pairwise(hits))
    least = hits[len(hits) // 2].relevance if hits else 0.5
    kept = ev.search(query, mode=mode, min_relevance=least)
    assert ids(kept) == [hit.id for hit in hits if hit.relevance >= least]
    if mode == "text":
        options = {k: v for k, v in options.items() if k not in ("diversity", "vector")}
    if "group_by" in options:
        options.pop("offset", None)
    found = ev.search(query, mode=mode, explain=True, **options)
    assert_adds_up(found)
    if not options.get("diversity") and "group_by" not in options:
        assert all(a.relevance >= b.relevance for a, b in pairwise(found))
    plain = ev.search(query, mode=mode, **options)
    assert [(h.id, h.relevance) for h in plain] == [(h.id, h.relevance) for h in found]


# rescoring belongs to the kind, in the store
def test_the_rescoring_of_a_kind_holds_for_every_opening(shared_world: World) -> None:
    mine, theirs = shared_world.ev, shared_world.open()
    for kind in ("news", "book"):
        mine.add(kind, "alpha", id="1")
    work(mine)
    shared_world.clock.move(90 * DAY)
    mine.register(Kind("news", rescore="recent"))
    for ev in (mine, theirs):
        found = {hit.kind: hit.relevance for hit in ev.search("alpha", mode="semantic")}
        assert found == {"news": pytest.approx(0.45), "book": pytest.approx(1.0)}
    theirs.register(Kind("news"))  # says nothing of it
    assert theirs.search("alpha", kind="news", mode="semantic")[0].relevance == pytest.approx(0.45)
    theirs.register(Kind("news", rescore="plain"))
    assert mine.search("alpha", kind="news", mode="semantic")[0].relevance == pytest.approx(1.0)
    assert mine.kinds() == theirs.kinds()


def test_a_kind_can_be_ranked_before_it_has_records(world: World) -> None:
    world.ev.register(Kind("news", rescore="recent"))
    world.ev.add("news", "alpha", id="1")
    work(world.ev)
    world.clock.move(90 * DAY)
    assert world.ev.search("alpha", mode="semantic")[0].relevance == pytest.approx(0.45)


# thresholds
@pytest.mark.every_index
def test_hits_below_a_similarity_are_left_out_however_they_were_found(world: World) -> None:
    ev = world.ev
    add_all(ev, KIND, "alpha beta", "alpha gamma delta omega", "alpha", *(["alpha beta"] * 8))
    work(ev)
    asked = vector("alpha beta")
    for mode in ("hybrid", "semantic"):
        for least in (0.3, 0.6, 0.99):
            hits = ev.search("alpha beta", 3, mode=mode, min_similarity=least)
            assert hits
            for hit in hits:
                assert hit.similarity is not None
                assert hit.similarity >= least - 1e-6
                assert hit.similarity == pytest.approx(float(asked @ vector(hit.text)), abs=1e-5)
    assert ev.search("omega", min_similarity=1.01) == []


def test_a_similarity_that_nobody_knows_is_not_enough(memory: World) -> None:
    memory.ev.add(KIND, "alpha", id="1")
    assert ids(memory.ev.search("alpha")) == ["1"]
    assert ids(memory.ev.search("alpha", min_similarity=0.1)) == []


def test_a_hit_of_little_evidence_has_little_relevance(memory: World) -> None:
    """Whatever else was found: the score is not stretched."""
    add_all(memory.ev, KIND, "alpha beta gamma", "delta")
    work(memory.ev)
    (best, *_) = memory.ev.search("alpha omega sigma zeta theta kappa")
    assert best.similarity is not None
    assert best.similarity < 0.5
    assert best.relevance < 0.6


# filters
@pytest.mark.parametrize("asked", [{}, {"group_by": "team"}, {"rerank": True}])
def test_a_record_that_changes_during_a_search_is_not_shown_against_the_filter(
    memory: World, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    class Reranker:
        name = "equal"

        def rerank(self, query: str, texts: Any) -> list[float]:
            assert texts == ["alpha"]
            return [0.5]

    ev = memory.ev
    for id in "12":
        ev.add(KIND, "alpha", id=id, metadata={"team": "mine"})
    work(ev)
    read = ev.store.records.found

    def change(records: Any) -> Any:
        ev.add(KIND, "alpha of others", id="2", metadata={"team": "other"})
        return read(records)

    monkeypatch.setattr(ev.store.records, "found", change)
    asked = asked if "rerank" not in asked else {"rerank": Reranker()}
    assert ids(ev.search("alpha", filter={"team": "mine"}, **asked)) == ["1"]


# pages
@pytest.mark.parametrize("mode", ["hybrid", "semantic", "text"])
def test_pages_follow_each_other(world: World, mode: str) -> None:
    texts = [f"alpha {WORDS[n % 5]} {WORDS[n * 7 % 5]} {n % 11}" for n in range(60)]
    add_all(world.ev, KIND, *texts)
    work(world.ev)
    pages = [ids(world.ev.search("alpha beta 3", 5, mode=mode, offset=n)) for n in range(0, 60, 5)]
    seen = [id for page in pages for id in page]
    assert len(seen) == len(set(seen))
    assert set(seen) == {str(n) for n in range(60)}
    assert ids(world.ev.search("alpha beta 3", 5, mode=mode)) == pages[0]
    assert world.ev.search("alpha beta 3", 5, mode=mode, offset=60) == []


@pytest.mark.every_index
@pytest.mark.parametrize("copies", [4, 400])
def test_pages_of_equal_records_neither_repeat_nor_miss_any(world: World, copies: int) -> None:
    count = max(copies, 200)
    texts = [f"alpha {WORDS[n // copies % 5]} {n // copies}" for n in range(count)]
    add_all(world.ev, KIND, *texts)
    work(world.ev)
    for mode in ("semantic", "hybrid"):
        for k, end in ((50, count), (7, 70)):
            pages = [
                ids(world.ev.search("alpha", k, mode=mode, offset=n)) for n in range(0, end, k)
            ]
            seen = [id for page in pages for id in page]
            assert len(seen) == len(set(seen)) == end


# a relevance means the same in every search
@pytest.mark.every_index
def test_a_relevance_does_not_depend_on_how_many_hits_are_wanted(world: World) -> None:
    rng = np.random.default_rng(3)
    texts = [" ".join(rng.choice(WORDS, 3)) + f" {n % 40} of {n}" for n in range(150)]
    add_all(world.ev, KIND, *texts)
    work(world.ev)
    for n in range(150, 155):
        world.ev.add(KIND, f"alpha 7 of {n}", id=str(n))  # words alone find it
    for asked in ("alpha beta 7", "omega 12 of 30"):
        every = {hit.id: hit for hit in world.ev.search(asked, 155, explain=True)}
        for hits in (
            world.ev.search(asked, 1, explain=True),
            world.ev.search(asked, 10, explain=True),
            world.ev.search(asked, 10, offset=60, explain=True),
            world.ev.search(asked, 40, min_relevance=0.3, explain=True),
            world.ev.search(asked, 10, kind=[KIND, "other"], explain=True),
        ):
            assert_adds_up(hits)
            for hit in hits:
                same = every[hit.id]
                assert hit.relevance == pytest.approx(same.relevance, abs=1e-5)
                assert (hit.similarity is None) == (same.similarity is None)
                assert hit.similarity == pytest.approx(same.similarity, abs=1e-5)
                assert hit.via == same.via
                why = hit.explanation
                assert why is not None
                assert why.meaning == pytest.approx(max(hit.similarity or 0.0, 0.0), abs=1e-6)


# groups
def test_groups_have_their_best_hits_and_the_best_group_is_first(world: World) -> None:
    ev = world.ev
    for n in range(30):
        text = "alpha " * (n % 5 + 1) + "beta"
        ev.add(KIND, text, id=str(n), metadata={"author": f"a{n % 3}", "tags": ["x"]})
    ev.add(KIND, "alpha", id="nobody's")
    work(ev)
    hits = ev.search("alpha", 2, group_by="author")
    groups: dict[Any, list[float]] = {}
    for hit in hits:
        groups.setdefault(hit.group, []).append(hit.relevance)
    assert set(groups) == {"a0", "a1", "a2", None}
    assert [len(groups[name]) for name in ("a0", "a1", "a2", None)] == [2, 2, 2, 1]
    best = [found[0] for found in groups.values()]
    assert best == sorted(best, reverse=True)
    assert all(found == sorted(found, reverse=True) for found in groups.values())
    assert len({hit.group for hit in ev.search("alpha", 1, group_by="author", groups=2)}) == 2
    tagged = ev.search("alpha", 1, group_by="tags")
    assert sorted((hit.group for hit in tagged), key=str) == [None, ["x"]]


def test_a_group_is_found_behind_many_records_of_another(memory: World) -> None:
    for n in range(200):
        memory.ev.add(KIND, f"alpha {n}", id=str(n), metadata={"author": "a"})
    memory.ev.add(KIND, "alpha beta gamma delta omega", id="last", metadata={"author": "b"})
    work(memory.ev)
    for mode in ("hybrid", "semantic", "text"):
        hits = memory.ev.search("alpha", 1, mode=mode, group_by="author", groups=2)
        assert [hit.group for hit in hits] == ["a", "b"]


# diversity
@pytest.mark.every_index
def test_diverse_hits_differ_from_each_other(world: World) -> None:
    ev = world.ev
    add_all(ev, KIND, "alpha beta", "alpha beta beta", "alpha alpha beta", "alpha omega", "delta")
    work(ev)
    near = ids(ev.search("alpha beta", 2, mode="semantic"))
    assert ids(ev.search("alpha beta", 2, mode="semantic", diversity=0)) == near
    diverse = ev.search("alpha beta", 2, mode="semantic", diversity=0.6)
    assert ids(diverse)[0] == near[0]
    assert ids(diverse)[1] in {"3", "4"}
    every = ev.search("alpha beta", 5, diversity=1.0)
    assert len(every) == len(set(ids(every))) == 5


def test_kinds_of_different_models_are_searched_for_diverse_hits(memory: World) -> None:
    """Only vectors of the same model are compared with each other."""
    ev = memory.ev
    for n, text in enumerate(("alpha beta", "alpha beta", "alpha gamma")):
        ev.add(KIND, text, id=str(n))
        ev.add("page", text, id=str(n))
    work(ev)
    migration = ev.migrate("hashing:32", kind="page")
    ev.process_all()
    migration.switch()
    hits = ev.search("alpha beta", 4, diversity=0.6)
    assert hits.version == "hashing-32, hashing-64"
    assert {(hit.kind, hit.id) for hit in hits[2:]} == {(KIND, "2"), ("page", "2")}


def test_the_order_of_diverse_hits_is_maximal_marginal_relevance(memory: World) -> None:
    rng = np.random.default_rng(7)
    texts = [" ".join(rng.choice(WORDS, 3)) + f" {n}" for n in range(12)]
    add_all(memory.ev, KIND, *texts)
    work(memory.ev)
    plain = memory.ev.search("alpha beta", 12, mode="semantic")
    rest = {hit.id: (hit.relevance, vector(hit.text)) for hit in plain}
    chosen: list[str] = []
    while rest:
        kept = [vector(texts[int(id)]) for id in chosen]

        def gain(id: str, kept: list[Any] = kept) -> float:
            relevance, own = rest[id]
            nearest = max((float(own @ other) for other in kept), default=0.0)
            return 0.5 * relevance - 0.5 * max(nearest, 0.0) if kept else relevance

        best = max(rest, key=gain)
        chosen.append(best)
        del rest[best]
    assert ids(memory.ev.search("alpha beta", 12, mode="semantic", diversity=0.5)) == chosen


# by vector, by record, several kinds, fewer fields
@pytest.mark.every_index
def test_a_search_by_vector_finds_what_its_text_would(world: World) -> None:
    ev = world.ev
    add_all(ev, KIND, "alpha beta", "gamma", "delta")
    work(ev)
    by_text = ev.search("alpha", mode="semantic")
    by_vector = ev.search(vector=(3 * vector("alpha")).tolist())
    assert by_vector.via == "semantic"
    assert ids(by_vector) == ids(by_text)
    np.testing.assert_allclose(
        [hit.relevance for hit in by_vector], [hit.relevance for hit in by_text], atol=1e-5
    )
    both = ev.search("gamma", vector=vector("alpha"))
    assert both.via == "hybrid"
    assert set(ids(both)[:2]) == {"0", "1"}


@pytest.mark.every_index
def test_similar_records_are_found_without_the_record_itself(world: World) -> None:
    ev = world.ev
    add_all(ev, KIND, "alpha beta", "alpha beta beta", "gamma", "delta")
    ev.add("other", "alpha beta", id="x")
    work(ev)
    assert ids(ev.similar(KIND, "0", 2))[0] == "1"
    assert len(ev.similar(KIND, 0)) == 3
    assert ev.of("another").search("alpha") == []
    for id in ("absent", "x"):
        with pytest.raises(InvalidArgument, match="does not exist or is not embedded yet"):
            ev.similar(KIND, id)
    with pytest.raises(InvalidArgument, match="does not exist"):
        ev.of("another").similar(KIND, "0")


def test_several_kinds_are_searched_together(world: World) -> None:
    for kind in ("a", "b", "c"):
        for n in range(4):
            world.ev.add(kind, f"alpha {kind} {n}", id=str(n))
    work(world.ev)
    for mode in ("hybrid", "semantic", "text"):
        found = world.ev.search("alpha", 20, kind=["a", "c"], mode=mode)
        assert {hit.kind for hit in found} == {"a", "c"}
        assert len(found) == 8


def test_a_hit_has_only_the_fields_that_were_asked_for(memory: World) -> None:
    memory.ev.add(KIND, "alpha", id="1", title="T", metadata={"a": 1})
    work(memory.ev)
    (hit,) = memory.ev.search("alpha", fields=["title"])
    assert (hit.title, hit.text, hit.metadata) == ("T", "", {})
    (hit,) = memory.ev.search("alpha", fields="metadata", explain=True)
    assert (hit.title, hit.text, hit.metadata) == (None, "", {"a": 1})
    assert hit.explanation is not None
    assert [match.word for match in hit.explanation.matched] == ["alpha"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "needs a query or a vector"),
        ({"vector": [1.0, 2.0]}, "vector has 2 numbers, but the vectors of .* have 64"),
        ({"vector": [0.0] * 64}, "not all of them 0"),
        ({"vector": [float("nan")] * 64}, "finite"),
        ({"vector": [[1.0]]}, "list of numbers"),
        ({"vector": ["1.0"] * 64}, "list of numbers"),
        ({"vector": [True] * 64}, "list of numbers"),
        ({"vector": [1.0] * 64, "mode": "text"}, "mode 'text'"),
        ({"query": "a", "vector": [1.0] * 64, "mode": "text"}, "leave out the vector"),
        ({"query": "a", "min_similarity": "x"}, "min_similarity must be a number"),
        ({"query": "a", "min_similarity": 0.5, "mode": "text"}, "needs vectors"),
        ({"query": "a", "min_relevance": float("inf")}, "min_relevance must be a number"),
        ({"query": "a", "offset": -1}, "offset must be"),
        ({"query": "a", "offset": 999}, "most_hits"),
        ({"query": "a", "offset": None}, "offset must be"),
        ({"query": "a", "group_by": ""}, "group_by"),
        ({"query": "a", "group_by": "x", "groups": 0}, "groups must be"),
        ({"query": "a", "group_by": "x", "offset": 5}, "leave out offset"),
        ({"query": "a", "k": 200, "group_by": "x"}, "most_hits"),
        ({"query": "a", "diversity": 1.5}, "from 0 to 1"),
        ({"query": "a", "fields": ["id"]}, "fields: a hit has no part 'id'"),
        ({"query": "a", "fields": 5}, "fields: a hit has no part 5"),
        ({"query": "a", "fields": [["text"]]}, "fields: a hit has no part"),
        ({"vector": [1e300, 1.0]}, "finite numbers"),
        ({"query": "a", "kind": []}, "a list of 1 to"),
        ({"query": "a", "kind": [7]}, "kind"),
        ({"query": "a", "kind": [["a"]]}, "kind: must be text"),
    ],
)
def test_an_impossible_search_is_refused(memory: World, asked: Any, message: str) -> None:
    memory.ev.add(KIND, "alpha", id="1")
    work(memory.ev)
    with pytest.raises(InvalidArgument, match=message):
        memory.ev.search(**asked)


def test_a_vector_needs_an_index_that_answers(memory: World, monkeypatch: Any) -> None:
    """Words cannot stand in for it."""

    def away(*_: object) -> None:
        raise ConnectionError("away")

    memory.ev.add(KIND, "alpha", id="1")
    work(memory.ev)
    monkeypatch.setattr(memory.ev.index, "search", away)
    with pytest.raises(ConnectionError):
        memory.ev.search(vector=vector("alpha"))
    assert memory.ev.search("alpha", vector=vector("alpha")).via == "text"


# versions
@pytest.mark.every_index
def test_a_version_that_does_not_serve_is_searched_by_its_name(world: World) -> None:
    ev = world.ev
    add_all(ev, KIND, "alpha beta", "gamma delta")
    work(ev)
    migration = ev.migrate("hashing:32", version="next")
    ev.add("page", "alpha of another kind", id="p")  # a kind that the new version lacks
    with pytest.raises(InvalidArgument, match="no version 'next'"):
        ev.search("alpha", kind="page", version="next")
    work(ev)
    hits = ev.search("alpha", version="next", explain=True)
    assert hits.version == "next"
    assert {hit.kind for hit in hits} == {KIND}
    assert {hit.explanation.version for hit in hits if hit.explanation} == {"next"}
    assert ids(hits)[0] == ids(ev.search("alpha", kind=KIND))[0]
    assert ev.search("alpha").version != "next"
    migration.cancel()
    with pytest.raises(InvalidArgument, match="no version 'next'"):
        ev.search("alpha", version="next")


def test_a_tenant_searches_only_its_own_records_in_a_version(world: World) -> None:
    ev, other = world.ev, world.ev.of("other")
    ev.add(KIND, "alpha mine", id="mine")
    other.add(KIND, "alpha theirs", id="theirs")
    other.add("secret", "alpha of a kind that only they have", id="kept")
    work(ev)
    ev.migrate("hashing:32", version="next")
    work(ev)
    assert ids(ev.search("alpha", version="next")) == ["mine"]
    with pytest.raises(InvalidArgument, match="no version 'next'"):
        ev.search("alpha", kind="secret", version="next")


def test_a_version_must_be_one_of_the_searched_kinds(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    wrong: tuple[Any, ...] = ("", "x" * 300, 3, "unknown")
    for version in wrong:
        with pytest.raises(InvalidArgument, match="version"):
            world.ev.search("alpha", version=version)
    with pytest.raises(InvalidArgument, match="version needs vectors"):
        world.ev.search("alpha", version="next", mode="text")


def test_the_first_hits_do_not_depend_on_how_many_are_asked_for(world: World) -> None:
    rng = np.random.default_rng(5)
    words = (*WORDS, "tea", "coffee", "rock")
    add_all(world.ev, KIND, *(" ".join(rng.choice(words, 1 + n % 12)) for n in range(40)))
    work(world.ev)
    for query in ("alpha beta", "omega", "gamma delta alpha", "tea rock"):
        most = ids(world.ev.search(query, 10))
        for k in (1, 2, 3, 5):
            assert ids(world.ev.search(query, k)) == most[:k]
