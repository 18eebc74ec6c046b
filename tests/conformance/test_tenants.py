"""A tenant never sees another's records, scores or counts."""

import pytest

from evervec import Evervec
from support.world import KIND, World, add_all, fail_for_good, version_of, work


@pytest.fixture
def other(world: World) -> Evervec:
    """Another tenant, beside one that has two records, one of them a dead letter."""
    add_all(world.ev, KIND, "alpha beta", "alpha gamma")
    work(world.ev)
    world.ev.add(KIND, "alpha delta", id="bad")
    fail_for_good(world.ev, "bad")
    return world.tenant("other")


def test_records_and_jobs_cannot_be_read(world: World, other: Evervec) -> None:
    assert other.get(KIND, "0") is None
    assert other.records() == []
    assert other.queue.jobs() == []
    assert other.queue.failed() == []
    assert other.queue.status(KIND, "0") is None
    assert other.queue.history(KIND, "0") == []
    job = world.ev.queue.status(KIND, "0")
    assert job is not None
    assert other.queue.get(job.job_id) is None


@pytest.mark.every_index
def test_searches_find_nothing(other: Evervec) -> None:
    for mode in ("hybrid", "semantic", "text"):
        assert list(other.search("alpha", mode=mode)) == []


def test_no_query_reaches_over_by_the_syntax_of_full_text(other: Evervec) -> None:
    other.add(KIND, "something else", id="mine")
    for query in ("scope", "t64656661756c74", "default", 'scope : "x"', "title:alpha"):
        assert {h.id for h in other.search(query, mode="text")} <= {"mine"}


def test_counts_are_the_tenants_own(world: World, other: Evervec) -> None:
    stats = other.queue.stats()
    assert (stats.pending, stats.processing, stats.done, stats.failed) == (0, 0, 0, 0)
    assert (stats.unique_records, stats.oldest_pending_seconds) == (0, None)
    assert (stats.average_processing_ms, stats.last_processed_at) == (None, None)
    mine = world.ev.queue.stats()
    assert (mine.done, mine.failed) == (2, 1)


@pytest.mark.every_index
def test_verify_looks_at_the_tenants_own_only(world: World, other: Evervec) -> None:
    (collection,) = world.ev.store.versions.collections()
    points = world.ev.index.held(collection.version, None, 0, None)
    assert world.ev.index.remove(collection.version, points) == 2
    report = other.verify(repair=True)
    assert report.clean
    assert (report.checked, report.repaired) == (0, 0)
    assert world.ev.verify().missing == 3


@pytest.mark.every_index
def test_scores_do_not_depend_on_what_others_have(world: World, other: Evervec) -> None:
    other.add(KIND, "alpha one two three", id="a")
    other.add(KIND, "one alpha alpha", id="b")
    work(other)
    before = other.search("alpha one", mode="semantic")
    noise = ({"id": f"noise {n}", "text": "one two three four"} for n in range(30))
    list(world.ev.add_many(KIND, noise))
    work(world.ev)
    after = other.search("alpha one", mode="semantic")
    assert [(h.id, h.similarity, h.relevance) for h in before] == [
        (h.id, h.similarity, h.relevance) for h in after
    ]


@pytest.mark.every_index
def test_tenants_whose_names_look_alike_are_apart(world: World) -> None:
    names = ["Ann", "ann", "an", "ann ", "änn", "anne", "an~", "t", "x" * 3000, 'a"b', "a'b"]
    tenants = {name: world.tenant(name) for name in names}
    for name, tenant in tenants.items():
        tenant.add(KIND, "shared words", id=f"of {name[:5]}")
    work(world.ev)
    for name, tenant in tenants.items():
        for mode in ("text", "semantic", "hybrid"):
            assert [h.id for h in tenant.search("shared", mode=mode)] == [f"of {name[:5]}"]


REACHING = ["default", "' or 1=1 --", '" or ""="', "%", "*", "default'; --", "{tenant}", "$.tenant"]


@pytest.mark.every_index
def test_no_name_id_or_filter_reaches_over(world: World, other: Evervec) -> None:
    """Whatever is put where a name, an id, a field or a value goes, stays just that."""
    for text in REACHING:
        assert other.get(text, "0") is None
        assert other.get(KIND, text) is None
        assert other.records(text) == other.records(filter={text: text}) == []
        assert other.records(filter={"tenant": "default"}) == []
        assert other.queue.jobs(kind=text) == other.queue.jobs(id=text) == []
        for mode in ("hybrid", "semantic", "text"):
            found = other.search("alpha", kind=text, mode=mode)
            assert found == other.search(text, mode=mode) == []
            assert other.search("alpha", filter={text: text}, mode=mode) == []
        if text != "default":
            stranger = world.tenant(text)
            assert stranger.records() == []
            assert stranger.queue.jobs() == []
            assert stranger.search("alpha") == []


def test_versions_and_estimates_count_the_tenants_own(world: World, other: Evervec) -> None:
    assert other.versions() == []  # not even which kinds others have
    assert other.estimate("hashing:32").records == 0
    other.add(KIND, "mine", id="mine")
    work(other)
    (mine,) = other.versions()
    assert (mine.kind, mine.items) == (KIND, 1)
    assert other.estimate("hashing:32").records == 1
    (every,) = other.versions(all_tenants=True)
    assert every.items == 3
    assert other.estimate("hashing:32", all_tenants=True).records == 4
    assert [version.items for version in world.ev.of("other").versions()] == [1]


def test_text_scores_do_not_depend_on_other_tenants(world: World) -> None:
    mine = ("lemon lemon harbour", "granite harbour granite", "a long text about a lemon " * 5)
    add_all(world.ev, KIND, *mine)
    world.ev.add("letter", "granite and lemon", id="x", title="lemon")
    queries = ("lemon", "lemon granite", "harbour", '"granite harbour" lemon', "long text lemon")

    def scores() -> list[object]:
        store, tenant = world.ev.store, world.ev.tenant
        found: list[object] = [store.records.search_text(tenant, None, q, 10, ()) for q in queries]
        found += [store.records.search_text(tenant, KIND, q, 10, ()) for q in queries]
        return found + [
            [(h.id, h.relevance) for h in world.ev.search(q, mode="text")] for q in queries
        ]

    before = scores()
    other = world.tenant("other")
    for count in (3, 2000):
        add_all(other, KIND, *(f"lemon lemon granite number {n} " * 9 for n in range(count)))
        assert scores() == before


@pytest.mark.every_index
def test_what_others_have_leaves_room_for_the_tenants_own(world: World, other: Evervec) -> None:
    other.add(KIND, "a zebra, and 東京都は日本の首都です", id="mine")
    work(world.ev)
    add_all(world.ev, KIND, *["zebra 日本の首都"] * 40)
    work(world.ev)
    for mode, query in (("text", "zebra"), ("text", "本の"), ("semantic", "zebra")):
        assert [hit.id for hit in other.search(query, k=1, mode=mode)] == ["mine"]


def test_ids_that_another_tenant_has_are_new_beside_ids_of_ones_own(
    world: World, other: Evervec
) -> None:
    other.add(KIND, "mine", id="mine")
    add_all(other, KIND, "zero")
    list(other.add_many(KIND, [{"id": id, "text": f"new {id}"} for id in ("mine", "0", "1")]))
    tickets = other.store.changes.delete("other", KIND, ["mine", "bad"])
    assert [ticket.accepted for ticket in tickets] == [True, False]
    work(world.ev)
    assert {r.id: r.text for r in other.records()} == {"0": "new 0", "1": "new 1"}
    texts = {"0": "alpha beta", "1": "alpha gamma", "bad": "alpha delta"}
    assert {r.id: r.text for r in world.ev.records()} == texts


def test_verify_of_a_tenant_reads_its_own_records_again(world: World, other: Evervec) -> None:
    add_all(world.ev, KIND, "theirs", "too")
    other.add(KIND, "mine", id="mine")
    work(world.ev)
    for tenant in (world.ev.tenant, other.tenant):
        version = version_of(world.ev)
        world.ev.index.remove(version, list(world.ev.index.held(version, tenant, 0, 100)))
    assert other.verify().missing == 1
