"""Full text at size: common words do not make a search score every record that has them."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

import evervec
from evervec.stores.postgres import PostgresStore, records
from evervec.stores.postgres.connections import Session
from evervec.stores.postgres.full_text import any_of, phrases
from evervec.stores.postgres.word_counts import WordCounts
from support import postgres
from support.engines import STORES
from support.processes import until
from support.world import KIND, World

COUNT = 3000
FEW, MOST, SOME = 200, 400, 150


def _text(number: int) -> str:
    """Two words that all records have, one that half of them have, and rare ones."""
    words = ["common", "usual"]
    words += ["half"] * (number % 2)
    words += ["dozen"] * (number % 250 == 1)
    words += ["hundred"] * (number % 30 == 0)
    return " ".join([*words, f"own{number}", *(f"filler{number % 7}" for _ in range(number % 5))])


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One large tenant and a small one, with statistics."""
    world = World(("postgres", "pgvector"), tmp_path_factory.mktemp("text"))
    list(world.ev.add_many(KIND, ({"id": n, "text": _text(n), "metadata": {"n": n}}
                                  for n in range(COUNT))))  # fmt: skip
    small = world.open(tenant="small")
    list(small.add_many(KIND, ({"id": f"s{n}", "text": "common usual small"} for n in range(20))))
    url = STORES["postgres"].url(world.folder)
    with store_of(world.ev).db.reading() as conn:
        conn.execute(postgres.CLEAN_GIN)
    postgres.execute(url, "analyze evervec.records")
    yield world
    world.close()


@pytest.fixture
def ev(filled: World, monkeypatch: pytest.MonkeyPatch) -> evervec.Evervec:
    """With bounds that these few records pass."""
    monkeypatch.setattr(records, "_FEW", FEW)
    monkeypatch.setattr(records, "_MOST", MOST)
    monkeypatch.setattr(records, "_SOME", SOME)
    return filled.open()


def store_of(ev: evervec.Evervec) -> PostgresStore:
    assert isinstance(ev.store, PostgresStore)
    return ev.store


def found(ev: evervec.Evervec, query: str, k: int = 10, **options: Any) -> list[str]:
    return [hit.id for hit in ev.search(query, k, mode="text", **options)]


def scored(ev: evervec.Evervec, query: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each statement of a search reads from the table."""
    asked: list[tuple[str, Any]] = []
    execute = Session.execute

    def noting(self: Session, query: str, values: Any = (), **how: Any) -> Any:
        asked.append((query, values))
        return execute(self, query, values, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "execute", noting)
        assert store_of(ev).records.search_text("default", None, query, 10, ())
    counts = []
    with store_of(ev).db.snapshot() as conn:
        conn.execute(records._BY_WORDS)
        for statement, values in asked:
            if "ts_rank" in statement:
                explain = f"explain (analyze, format json) {statement}"
                ((plan,),) = conn.execute(explain, values).fetchall()
                assert re.search(r"records(_\d)?_words", json.dumps(plan))
                counts.append(int(_rows(plan)))
    return counts


def _rows(node: Any) -> float:
    """The rows that come from the table."""
    if isinstance(node, list):
        return sum(map(_rows, node))
    if not isinstance(node, dict):
        return 0.0
    if re.fullmatch(r"records(_\d)?", node.get("Relation Name", "")):
        return float(node["Actual Rows"])
    return sum(map(_rows, node.values()))


@pytest.mark.parametrize(
    ("query", "most"),
    [
        ("own77 common usual", 1 + SOME),
        ("hundred common usual half", 100),
        ("common usual half", SOME),
        ("common", SOME),
        ("dozen hundred common", 112),
    ],
)
def test_common_words_do_not_read_the_whole_table(
    ev: evervec.Evervec, query: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sum(scored(ev, query, monkeypatch)) <= most < COUNT // 4


def test_the_score_of_what_a_rare_word_finds_counts_the_common_words(ev: evervec.Evervec) -> None:
    every = [str(n) for n in range(COUNT) if n % 250 == 1]
    assert sorted(found(ev, "dozen", 12)) == sorted(every)
    first = found(ev, "dozen hundred common half", 3)
    # those that are in both lists come first
    assert set(first) <= {str(n) for n in range(COUNT) if n % 30 == 0 or n % 250 == 1}


def test_a_search_finds_as_many_as_asked_for_when_a_rare_word_finds_fewer(
    ev: evervec.Evervec,
) -> None:
    hits = found(ev, "own77 common", 10)
    assert len(set(hits)) == 10
    assert hits[0] == "77"
    assert len(set(found(ev, "own77 common usual", 1000))) == 1000


def test_records_with_all_common_words_are_found_before_others(ev: evervec.Evervec) -> None:
    assert all(int(id) % 2 for id in found(ev, "common half", 10))


def test_common_words_and_a_filter_that_few_pass(ev: evervec.Evervec) -> None:
    assert found(ev, "common usual", 10, filter={"n": 2999}) == ["2999"]


def test_a_small_tenant_is_searched_whole(
    filled: World, ev: evervec.Evervec, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = filled.open(tenant="small")
    assert len(found(small, "common", 50)) == 20
    assert all(id.startswith("s") for id in found(small, "common usual small own77", 50))


def test_within_the_bounds_the_hits_are_those_of_all_matches(
    filled: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_FEW", 10 * COUNT)
    monkeypatch.setattr(records, "_MOST", 10 * COUNT)
    ev = filled.open()
    for query in ("own77 common", "dozen hundred half", "common usual", "filler3 half"):
        expected = _by_all(ev, query)
        assert store_of(ev).records.search_text("default", None, query, 10, ()) == expected


def _by_all(ev: evervec.Evervec, query: str) -> list[tuple[int, float]]:
    words = any_of(phrases(query.split()))
    statement = """select record,
        ts_rank(array[0, 0, 0.5, 1], words, $1::tsquery, 1)::double precision as score
        from evervec.records where words @@ $1::tsquery and tenant = 'default'
        order by score desc, record limit 10"""
    with store_of(ev).db.reading() as conn:
        return list(conn.execute(statement, (words,)).fetchall())


def test_housekeeping_counts_words_that_the_server_has_not_counted(
    world: World, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evervec.stores.postgres.word_counts._WORTH_COUNTING", 50)
    analyzed = (
        "select analyze_count from pg_stat_user_tables where relid = 'evervec.records'::regclass"
    )
    before = postgres.execute(url, analyzed)
    list(world.ev.add_many(KIND, ({"id": n, "text": f"alpha {n}"} for n in range(2000))))
    counts = WordCounts(store_of(world.ev).db)

    def are_counted() -> bool:
        world.ev.store.maintain()
        return postgres.execute(url, analyzed) > before

    until(are_counted, "the table to be analyzed")
    estimates = counts.of("nobody", [("alpha",), ("1",)])
    assert estimates is not None
    assert estimates["alpha",] > 10 * estimates["1",]
