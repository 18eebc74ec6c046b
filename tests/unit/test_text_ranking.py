"""Full text of SQLite: BM25 by the tenant's own records alone, against the plain formula."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import evervec
from evervec.model.filters import parse_filter
from evervec.stores.sqlite.changes import scope
from evervec.stores.sqlite.ranking import Ranking

WORDS = [f"{a}{b}" for a in "bvfgk" for b in "aou"] + ["zu"]
Texts = list[tuple[str, str]]


def some_texts(seed: int, count: int) -> Texts:
    rng = random.Random(seed)
    weights = [1 / (n + 1) for n in range(len(WORDS))]

    def words(least: int, most: int) -> str:
        return " ".join(rng.choices(WORDS, weights, k=rng.randint(least, most)))

    return [(words(0, 3), words(1, 40)) for _ in range(count)]


def plain(texts: Texts, query: Sequence[str]) -> dict[str, float]:
    """BM25 as it stands in the books, with titles counted twice."""
    sizes = [1 + len(title.split()) + len(text.split()) for title, text in texts]
    usual = sum(sizes[-100:]) / len(sizes[-100:])
    scores = dict.fromkeys(map(str, range(len(texts))), 0.0)
    for word in query:
        times = [2 * Counter(a.split())[word] + Counter(b.split())[word] for a, b in texts]
        having = sum(count > 0 for count in times)
        rarity = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for n, (count, size) in enumerate(zip(times, sizes, strict=True)):
            scores[str(n)] += rarity * 2.2 * count / (count + 1.2 * (0.25 + 0.75 * size / usual))
    return {id: score for id, score in scores.items() if score > 0}


def fill(ev: evervec.Evervec, texts: Texts) -> None:
    list(
        ev.add_many(
            "note",
            (
                {"id": n, "title": title or None, "text": text, "metadata": {"even": n % 2 == 0}}
                for n, (title, text) in enumerate(texts)
            ),
        )
    )


def ranked(
    ev: evervec.Evervec,
    query: str,
    limit: int,
    kind: str | None = None,
    filter: dict[str, Any] | None = None,
) -> list[tuple[str, float]]:
    found = ev.store.records.search_text(ev.tenant, kind, query, limit, parse_filter(filter))
    records = ev.store.records.found([record for record, _ in found])
    return [(records[record].id, score) for record, score in found]


@pytest.mark.parametrize("mine", [40, 400, 4000], ids=["few", "half", "most"])
def test_scores_are_those_of_the_formula(mine: int) -> None:
    texts = some_texts(mine, mine)
    with evervec.open("memory:", embedder="noop") as ev:
        fill(ev, some_texts(1, 500))
        tenant = ev.of("mine")
        fill(tenant, texts)
        for query in ("ba", "zu", "ba zu", "vu fu ga zu", " ".join(WORDS)):
            wanted = plain(texts, query.split())
            best = sorted(wanted.values(), reverse=True)
            found = ranked(tenant, query, 10)
            assert [score for _, score in found] == pytest.approx(best[:10])
            assert all(wanted[id] == pytest.approx(score) for id, score in found)
            even = sorted((s for id, s in wanted.items() if int(id) % 2 == 0), reverse=True)
            for kind in (None, "note"):
                found = ranked(tenant, query, 10, kind, {"even": True})
                assert [score for _, score in found] == pytest.approx(even[:10])
            assert ranked(tenant, query, 10, kind="other") == []


def test_a_selective_filter_finds_what_ranks_low() -> None:
    with evervec.open("memory:", embedder="noop") as ev:
        fill(ev, [("", "ba " * (2 + n % 7)) for n in range(300)])
        ev.add("note", "ba and much else " + "zu " * 50, id="low", metadata={"odd": 1})
        assert [id for id, _ in ranked(ev, "ba zu", 5, filter={"odd": 1})] == ["low"]


def test_common_words_are_looked_up_only_in_what_can_be_among_the_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int | None] = []
    occurrences = Ranking._occurrences

    def look(
        self: Ranking, match: str, shared: float | None = None, among: object = None
    ) -> object:
        looked.append(len(among) if among is not None else None)  # type: ignore[arg-type]
        return occurrences(self, match, shared, among)  # type: ignore[arg-type]

    monkeypatch.setattr(Ranking, "_occurrences", look)
    with evervec.open("memory:", embedder="noop") as ev:
        fill(ev, [("", f"ba {'zu' if n < 20 else 'vu'}") for n in range(1000)])
        assert len(ranked(ev, "ba zu", 10)) == 10
    assert looked == [None, 20]


def test_the_scope_of_a_tenant_is_no_word_of_a_text() -> None:
    with evervec.open("memory:", embedder="noop") as ev:
        ev.add("note", scope("default"), id="1")
        assert ranked(ev.of("other"), scope("default"), 5) == []


def test_segments_are_merged_eight_at_a_time() -> None:
    """With FTS5's four, adding many records copies words more often."""
    with (
        evervec.open("memory:", embedder="noop") as ev,
        ev.store.db.reading() as conn,  # type: ignore[attr-defined]
    ):
        query = "select v from evervec_text_config where k = 'automerge'"
        assert conn.execute(query).fetchone() == (8,)
