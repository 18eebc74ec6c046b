"""What `verify` tells of records whose chunks leave something of the text out, or are in doubt."""

from collections.abc import Iterable
from typing import Any

import pytest

import evervec.verify.verify
from evervec import Chunker, Evervec, Kind, Status
from evervec.chunking import hash_text
from evervec.indexes.base import Held, Stray
from evervec.model.findings import QUICK, Findings
from evervec.model.records import Chunk
from evervec.stores.values import Expected
from evervec.verify.diff import compare
from evervec.verify.verify import verify_versions
from support.sabotage import run_sql
from support.world import KIND, World, add_all, fail_for_good, work


class Headings:
    """Embeds nothing but the lines that begin with a mark."""

    spec = "headings"

    def split(self, text: str) -> Iterable[tuple[int, int]]:
        at = 0
        for line in text.splitlines(keepends=True):
            if line.startswith("#"):
                yield at, at + len(line.rstrip())
            at += len(line)


TEXT = "# Tea\nIt grows on hills.\n# Rock\nIt is hard."


@pytest.fixture
def elsewhere(memory: World) -> Evervec:
    """The same store in a process that has not the kind's code."""
    chunker: Chunker = Headings()
    memory.ev.register(Kind("page", chunker=chunker))
    add_all(memory.ev, "page", TEXT, TEXT + "\n")
    work(memory.ev)
    return memory.tenant(memory.ev.tenant)


def test_a_chunker_that_leaves_text_out_is_asked_for_its_cuts(
    memory: World, elsewhere: Evervec
) -> None:
    assert memory.ev.verify().complete
    run_sql(memory, "update evervec_records set text = text || '# Sea' where id = '0'")
    assert memory.ev.verify().clean, "the line has no mark"
    run_sql(memory, "update evervec_records set text = text || '# Sea' where id = '1'")
    assert memory.ev.verify(repair=True).found == {"stale": 1}
    work(memory.ev)
    assert memory.ev.verify().complete


def test_without_its_chunker_a_kind_is_named_as_unchecked(elsewhere: Evervec) -> None:
    elsewhere.add("page", TEXT, id="a job is on its way")
    report = elsewhere.verify()
    assert (report.clean, report.complete, report.checked) == (True, False, 2)
    (what,) = report.unchecked
    assert what.startswith("page: 2 records were not compared with their texts")


def test_a_version_is_cut_as_its_kind_says(memory: World, elsewhere: Evervec) -> None:
    (version,) = [c.version for c in memory.ev.store.versions.collections()]
    store, index = memory.ev.store, memory.ev.index
    assert verify_versions(store, index, memory.ev.pipeline.served.cutter_of, {version}).complete
    assert not verify_versions(
        store, index, elsewhere.pipeline.served.cutter_of, {version}
    ).complete


def test_what_is_unchecked_is_counted_through_all_slices(
    elsewhere: Evervec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evervec.verify.verify, "_SLICE", 1)
    (what,) = elsewhere.verify().unchecked
    assert what.startswith("page: 2 records were not compared with their texts")


def test_without_its_chunker_what_stands_elsewhere_is_seen_all_the_same(
    memory: World, elsewhere: Evervec
) -> None:
    run_sql(memory, "update evervec_records set text = replace(text, 'Tea', 'Sea')")
    assert elsewhere.verify().found == {"stale": 2}


def test_a_record_in_doubt_is_stale_unless_a_job_settles_it() -> None:
    hash = hash_text("alpha")
    settled = Expected(1, "t", "note", "1", True, True, True, None, (Chunk(hash, 0, 1),), 5)
    held = [Held(1, "t", hash, 5, key=1)]
    assert compare([settled], held, {}) == {}
    doubtful = settled._replace(doubtful=True)
    (wrong,) = compare([doubtful], held, {}).values()
    assert (wrong.faults, wrong.again, wrong.forget) == ({"stale"}, True, True)
    busy = doubtful._replace(job=Status.PENDING)
    assert compare([busy], held, {}) == {}


def expected(number: int, chunks: int) -> Expected:
    pieces = tuple(Chunk(hash_text(str(n)), n, n + 1) for n in range(chunks))
    return Expected(number, "t", "note", str(number), True, True, True, None, pieces, 5)


def test_a_slice_holds_so_many_chunks_unless_one_record_has_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evervec.verify.verify, "_CHUNKS", 5)

    def first_of(*chunks: int) -> int:
        return len(evervec.verify.verify._bounded([expected(n, c) for n, c in enumerate(chunks)]))

    assert first_of(2, 3) == 2
    assert first_of(2, 3, 1) == 2
    assert first_of(2, 4) == 1
    assert first_of(9, 1) == 1
    assert first_of(9) == 1
    assert first_of() == 0


def test_small_slices_see_every_record_and_every_point(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evervec.verify.verify, "_SLICE", 2)
    add_all(memory.ev, KIND, *"abcde")
    work(memory.ev)
    seen: list[int] = []
    report = memory.ev.verify(progress=seen.append)
    assert (report.checked, report.clean, seen) == (5, True, [2, 2, 1])
    run_sql(memory, "update evervec_records set text = 'z' where id in ('1', '2', '4')")
    report = memory.ev.verify(repair=True)
    assert (report.found, report.repaired) == ({"stale": 3}, 3)
    work(memory.ev)
    assert memory.ev.verify().complete


def test_versions_are_compared_with_the_texts_and_left_alone(memory: World) -> None:
    ev = memory.ev
    add_all(ev, KIND, "alpha", "beta")
    work(ev)
    (version,) = [c.version for c in ev.store.versions.collections()]
    cutter_of = ev.pipeline.served.cutter_of
    run_sql(memory, "update evervec_records set text = 'gamma' where id = '1'")
    for _ in range(2):
        report = verify_versions(ev.store, ev.index, cutter_of, {version})
        assert (report.found, report.repaired, report.unchecked) == ({"stale": 1}, 0, ())
    assert verify_versions(ev.store, ev.index, cutter_of, {version + 1}).checked == 0
    report = verify_versions(ev.store, ev.index, cutter_of, {version}, repair=True)
    assert (report.found, report.repaired) == ({"stale": 1}, 1)
    work(ev)
    assert verify_versions(ev.store, ev.index, cutter_of, {version}).clean


def test_points_of_several_unknown_versions_are_counted_together(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    strays = [Stray(98, "default", 2), Stray(99, "default", 3)]
    asked: list[str | None] = []

    def found(known: object, tenant: str | None) -> list[Stray]:
        asked.append(tenant)
        return strays

    monkeypatch.setattr(memory.ev.index, "strays", found)
    dropped: list[Stray] = []
    monkeypatch.setattr(memory.ev.index, "drop_strays", dropped.extend)
    assert memory.ev.verify().found == {"misplaced": 5}
    assert dropped == []
    report = memory.ev.verify(repair=True)
    assert (report.repaired, dropped) == (5, strays)
    assert asked == ["default"] * 4, "each time twice, for a version that just came or went"


def test_an_empty_kind_means_the_points_of_unknown_versions(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_all(memory.ev, KIND, "alpha", "beta")
    work(memory.ev)
    (version,) = [c.version for c in memory.ev.store.versions.collections()]
    strays = [Stray(version, "default", 2), Stray(99, "default", 3)]
    monkeypatch.setattr(memory.ev.index, "strays", lambda known, tenant: strays)
    dropped: list[Stray] = []
    monkeypatch.setattr(memory.ev.index, "drop_strays", dropped.extend)
    report = memory.ev.verify(repair=True, kind="", faults=["stale"])
    assert (report.found, report.checked, dropped) == ({"misplaced": 3}, 0, [])
    memory.ev.verify(repair=True, kind="", faults=["misplaced"])
    assert dropped == strays[1:]
    assert memory.ev.verify(kind=KIND).found == {"misplaced": 2}


def test_what_is_written_again_may_be_written_before_its_tombstones_are_gone(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_all(memory.ev, KIND, "alpha", "beta", "gamma")
    work(memory.ev)
    (version,) = [c.version for c in memory.ev.store.versions.collections()]
    numbers = [e.record for e in memory.ev.store.records.expected(None, version, 0, 9)]
    revived: list[tuple[int, list[int]]] = []
    monkeypatch.setattr(memory.ev.index, "revive", lambda v, records: revived.append((v, records)))
    run_sql(memory, "update evervec_records set text = text || '!' where id <> '1'")
    memory.ev.verify()
    assert revived == []
    memory.ev.verify(repair=True)
    assert revived == [(version, [numbers[0], numbers[2]])]


def test_tables_are_compared_for_the_same_tenant_and_counted_with_the_rest(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str | None, bool, dict[str, object]]] = []

    def compare(
        tables: object, tenant: str | None, findings: Findings, *, repair: bool, **chosen: object
    ) -> None:
        asked.append((tenant, repair, chosen))
        findings.repaired += 1

    monkeypatch.setattr("evervec.verify.verify.compare_tables", compare)
    strays = [Stray(98, "default", 2)]
    monkeypatch.setattr(memory.ev.index, "strays", lambda used, tenant: strays)
    monkeypatch.setattr(memory.ev.index, "drop_strays", lambda found: None)
    assert memory.ev.verify(repair=True).repaired == 3
    memory.ev.verify(all_tenants=True, kind=KIND, faults=["stale"])
    assert asked == [
        ("default", True, {"kind": None, "faults": None}),
        (None, False, {"kind": KIND, "faults": {"stale"}}),
    ]


def test_what_looks_wrong_is_looked_at_once_more(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_all(memory.ev, KIND, "alpha", "beta")
    work(memory.ev)
    held, looks = memory.ev.index.held, []

    def counted(*place: Any) -> Any:
        looks.append(place)
        return held(*place)

    monkeypatch.setattr(memory.ev.index, "held", counted)
    assert memory.ev.verify().clean
    assert len(looks) == 1
    run_sql(memory, "update evervec_records set text = 'gamma' where id = '1'")
    assert memory.ev.verify().found == {"stale": 1}
    assert len(looks) == 3


def test_a_tenant_sees_its_own_records_and_all_of_them_together(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha")
    add_all(memory.tenant("other"), KIND, "beta", "gamma")
    work(memory.ev)
    own, everything = memory.ev.verify(), memory.ev.verify(all_tenants=True)
    assert (own.checked, own.complete) == (1, True)
    assert (everything.checked, everything.complete) == (3, True)


def test_a_quick_look_says_once_what_it_left_out(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha")
    add_all(memory.ev, "page", "beta")
    work(memory.ev)
    report = memory.ev.verify(quick=True)
    assert (report.checked, report.unchecked) == (2, (QUICK,))
    run_sql(memory, "update evervec_records set text = 'gamma'")
    assert memory.ev.verify(quick=True).clean, "the texts are not read"


def test_records_that_come_during_a_look_hide_nothing(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evervec.verify.verify, "_SLICE", 2)
    memory.ev.add(KIND, "alpha", id="0")
    work(memory.ev)
    run_sql(memory, "update evervec_records set text = 'gamma'")
    held, new = memory.ev.index.held, iter([["1", "2", "3"]])

    def growing(*place: Any) -> Any:
        for id in next(new, []):
            memory.ev.add(KIND, "beta", id=id)
        return held(*place)

    monkeypatch.setattr(memory.ev.index, "held", growing)
    assert memory.ev.verify().found == {"stale": 1}


def test_dead_letters_are_counted(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha", "beta")
    fail_for_good(memory.ev, "1")
    work(memory.ev)
    report = memory.ev.verify()
    assert (report.failed, report.complete) == (1, False)


def test_what_changes_at_every_look_is_reported_as_waiting(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_all(memory.ev, KIND, "alpha", "beta")
    work(memory.ev)
    run_sql(memory, "update evervec_records set text = 'gamma' where id = '1'")
    held = memory.ev.index.held
    texts = iter("abcdefgh")

    def changing(*place: Any) -> Any:
        memory.ev.add(KIND, next(texts), id="1")
        work(memory.ev)
        return held(*place)

    monkeypatch.setattr(memory.ev.index, "held", changing)
    report = memory.ev.verify()
    assert (report.found, report.waiting, report.checked) == ({}, 1, 1)
