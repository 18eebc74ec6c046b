"""One record beside its points: each thing that can be wrong, and what mends it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from evervec.chunking import Cutter, SizeChunker, Window, hash_text
from evervec.indexes.base import Copy, Held
from evervec.model.jobs import Status
from evervec.model.records import Chunk
from evervec.stores.values import Expected, Found
from evervec.verify.diff import Content, Wrong, compare, contents_of

A, B = hash_text("alpha"), hash_text("beta")
ONE, TWO = (Chunk(A, 0, 5),), (Chunk(A, 0, 5), Chunk(B, 6, 10))
GOOD = Content(True, {"a": 1.0}, {A: "alpha", B: "beta"})
Verdict = tuple[set[str], int, bool, bool]


def record(chunks: tuple[Chunk, ...] = ONE, **given: Any) -> Expected:
    told: dict[str, Any] = {
        "live": True,
        "current": True,
        "cut": True,
        "job": Status.DONE,
        "seq": 7,
    } | given
    return Expected(1, "t", "note", "1", chunks=chunks, **told)


def point(hash: bytes = A, seq: int = 7, **given: Any) -> Held:
    return Held(1, given.pop("tenant", "t"), hash, seq, **({"key": 1} | given))


def verdict(expected: Expected, *held: Held, content: Content | None = None) -> Verdict | None:
    """Faults, how many points are to go, and whether it is written again, with new vectors."""
    found = compare([expected], held, {} if content is None else {1: content})
    wrong = found.pop(("t", 1), None)
    assert not found
    if wrong is None:
        return None
    return wrong.faults, len(wrong.spare), wrong.again, wrong.forget


def copy(text: str = "alpha", metadata: Mapping[str, Any] | None = None) -> Copy:
    return Copy(text, {"a": 1} if metadata is None else metadata)


@pytest.mark.parametrize(
    ("expected", "held", "content", "wanted"),
    [
        # right
        (record(), [point()], None, None),
        (record(), [point()], GOOD, None),
        (record(), [point()], Content(None), None),
        (record(TWO), [point(A), point(B)], None, None),
        (record(TWO), [point(A), point(B)], GOOD, None),
        (record(), [point(copy=copy())], GOOD, None),
        (record(), [point(copy=copy("# title\n\nalpha"))], GOOD, None),
        (record(live=False), [], None, None),
        # about to be settled
        (record(job=Status.PENDING), [], None, None),
        (record(job=Status.PROCESSING), [point(B, 3)], None, None),
        # missing
        (record(), [], None, ({"missing"}, 0, True, True)),
        (record(job=Status.FAILED), [], None, ({"missing"}, 0, True, True)),
        (record(TWO), [point(A)], None, ({"missing"}, 0, True, True)),
        (record(TWO), [point(A, 6)], None, ({"missing"}, 0, True, True)),
        (record(()), [], None, ({"missing"}, 0, True, True)),
        # stale
        (record(()), [point()], None, ({"stale"}, 0, True, True)),
        (record(), [point(seq=6)], None, ({"stale"}, 0, True, False)),
        (record(TWO), [point(A), point(B, 6)], None, ({"stale"}, 0, True, False)),
        (record(), [point(seq=8)], None, ({"stale"}, 1, True, True)),
        (record(), [point(sound=False)], None, ({"stale"}, 0, True, True)),
        (record(TWO), [point(A), point(B, sound=False)], None, ({"stale"}, 0, True, True)),
        (record(current=False), [point()], None, ({"stale"}, 0, True, False)),
        (record(), [point()], Content(False), ({"stale"}, 0, True, False)),
        (record(doubtful=True), [point()], None, ({"stale"}, 0, True, True)),
        (record(doubtful=True), [], None, ({"missing"}, 0, True, True)),
        (record(), [point(copy=copy("other"))], GOOD, ({"stale"}, 0, True, True)),
        (record(), [point(copy=copy(metadata={"a": 2}))], GOOD, ({"stale"}, 0, True, False)),
        # orphaned
        (record(live=False), [point()], None, ({"orphaned"}, 1, False, False)),
        (record(), [point(), point(B)], None, ({"orphaned"}, 1, False, False)),
        (record(), [point(B)], None, ({"orphaned", "missing"}, 1, True, True)),
        # doubled
        (
            record(),
            [point(), point(key=2), point(B, key=3)],
            None,
            ({"doubled", "orphaned"}, 2, False, False),
        ),
        (
            record(TWO),
            [point(A), point(A, key=2), point(B, key=3), point(B, key=4)],
            None,
            ({"doubled"}, 2, False, False),
        ),
        (record(), [point(), point(key=2)], None, ({"doubled"}, 1, False, False)),
        (record(), [point(), point()], None, ({"doubled"}, 1, True, True)),
        (record(), [point(seq=6), point(key=2)], None, ({"doubled"}, 1, False, False)),
        (record(), [point(sound=False), point(key=2)], None, ({"doubled"}, 1, False, False)),
        (
            record(),
            [point(copy=copy("other")), point(key=2, copy=copy())],
            GOOD,
            ({"doubled"}, 1, False, False),
        ),
    ],
)
def test_what_is_wrong_and_what_mends_it(
    expected: Expected, held: list[Held], content: Content | None, wanted: Verdict | None
) -> None:
    assert verdict(expected, *held, content=content) == wanted


def test_the_best_of_doubled_points_stays() -> None:
    good = point(key=2)
    for bad in (point(seq=6), point(sound=False), point(copy=copy("other"))):
        found = compare([record()], [bad, good], {1: GOOD})
        assert found["t", 1].spare == [bad]


def test_points_of_another_tenant_or_of_no_record_are_orphans() -> None:
    others = point(tenant="u")
    nobodys = Held(9, "t", A, 7)
    found = compare([record()], [point(), others, nobodys], {})
    assert found == {
        ("u", 1): Wrong({"orphaned"}, [others]),
        ("t", 9): Wrong({"orphaned"}, [nobodys]),
    }


# ---- whether the ledger's chunks are those of the text


class Shelf:
    """A store that has some texts, and counts how many it gives at once."""

    def __init__(self, texts: Mapping[int, Found]) -> None:
        self.texts = texts
        self.asked: list[list[int]] = []

    def found(self, records: Iterable[int]) -> dict[int, Found]:
        wanted = list(records)
        self.asked.append(wanted)
        return {n: self.texts[n] for n in wanted if n in self.texts}


def contents(
    text: str,
    chunks: tuple[Chunk, ...],
    cutter: Callable[[], Cutter | None] = lambda: None,
    *,
    title: str | None = None,
    held: Iterable[Held] = (),
    metadata: str = "{}",
    quick: bool = False,
    **given: Any,
) -> dict[int, Content]:
    shelf: Any = Shelf({1: Found(1, "note", "1", title, text, metadata)})
    return contents_of(shelf, [record(chunks, **given)], list(held), cutter, quick=quick)


def embedded(text: str, chunks: tuple[Chunk, ...], *args: Any, **given: Any) -> bool | None:
    return contents(text, chunks, *args, **given)[1].embedded


def test_chunks_that_cover_a_text_are_its_own() -> None:
    assert embedded("alpha", ONE) is True
    assert embedded(" alpha\n", (Chunk(A, 1, 6),)) is True
    assert embedded("alpha beta", TWO) is True
    assert embedded("alpha beta", TWO[::-1]) is True
    assert embedded("gamma", ONE) is False
    assert embedded("alpha beta", (Chunk(A, 0, 5), Chunk(B, 5, 10))) is False
    assert embedded("anything", ()) is True  # nothing is said of it


def test_a_chunker_is_asked_where_something_is_left_out() -> None:
    def cutter() -> Cutter:
        return Cutter(SizeChunker(64))

    for text, chunks in (
        ("alpha beta", ONE),
        ("beta alpha", (Chunk(A, 5, 10),)),
        ("xalpha", (Chunk(A, 1, 6),)),
        ("alpha gamma beta", (Chunk(A, 0, 5), Chunk(B, 12, 16))),
    ):
        assert embedded(text, chunks) is None
        assert embedded(text, chunks, cutter) is False

    class First:
        spec = "first word"

        def split(self, text: str) -> list[tuple[int, int]]:
            return [(0, 5)]

    class Broken(First):
        def split(self, text: str) -> list[tuple[int, int]]:
            raise ZeroDivisionError

    assert embedded("alpha beta", ONE, lambda: Cutter(First())) is True
    assert embedded("alpha beta", ONE, lambda: Cutter(Broken())) is None


def test_a_title_is_a_part_of_each_chunk() -> None:
    titled = (Chunk(hash_text("T\n\nalpha"), 0, 5),)
    assert embedded("alpha", titled, title="T") is True
    assert embedded("alpha", ONE, title="T") is None
    assert embedded("alpha", ONE, lambda: Cutter(SizeChunker(64)), title="T") is False
    assert embedded("alpha", titled) is False

    class First:
        spec = "first word"

        def split(self, text: str) -> list[tuple[int, int]]:
            return [(0, 5)]

    assert embedded("alpha beta", titled, lambda: Cutter(First()), title="T") is True


def test_texts_are_read_only_where_that_is_needed() -> None:
    copied = point(copy=copy())
    assert contents("alpha", ONE, quick=True) == {}
    assert embedded("gamma", ONE, quick=True, held=[copied]) is True
    assert contents("alpha", ONE, live=False) == {}
    assert embedded("gamma", ONE, current=False) is True
    known = contents("alpha beta", TWO, held=[point(), copied], metadata='{"a": 1}')[1]
    assert (known.metadata, known.pieces) == ({"a": 1.0}, {A: "alpha", B: "beta"})
    plain = contents("alpha beta", TWO, held=[point()], metadata='{"a": 1}')[1]
    assert (plain.metadata, plain.pieces) == (None, {})


@pytest.mark.parametrize(
    ("given", "stored", "same"),
    [
        ({"a": 1.0}, '{"a": 1}', True),
        ({"a": [1, {"b": 2.0}]}, '{"a": [1.0, {"b": 2}]}', True),
        ({"a": float(2**53)}, f'{{"a": {2**53 + 1}}}', True),  # as an engine of floats has it
        ({"a": 2}, '{"a": 1}', False),
        ({"a": True}, '{"a": true}', True),
        ({"a": "1"}, '{"a": 1}', False),
        ({"a": [1, 2]}, '{"a": [2, 1]}', False),
        ({"a": 10**400}, '{"a": 1' + "0" * 400 + "}", True),
        ({"a": 10**400 + 1}, '{"a": 1' + "0" * 400 + "}", False),
    ],
)
def test_metadata_is_compared_by_its_meaning(
    given: dict[str, Any], stored: str, same: bool
) -> None:
    held = point(copy=copy(metadata=given))
    known = contents("alpha", ONE, held=[held], metadata=stored)
    assert (compare([record()], [held], known) == {}) is same


def test_few_long_texts_are_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evervec.verify.diff._CHARACTERS", 10)
    records = [record((Chunk(A, 0, 5),))._replace(record=n) for n in range(1, 6)]
    shelf: Any = Shelf({n: Found(n, "note", str(n), None, "alpha", "{}") for n in range(1, 6)})
    assert contents_of(shelf, records, [], lambda: None, quick=False).keys() == {1, 2, 3, 4, 5}
    assert shelf.asked == [[1, 2], [3, 4], [5]]
    long = [record((Chunk(A, 0, 11),))._replace(record=n) for n in (1, 2)]
    shelf.asked.clear()
    contents_of(shelf, long, [], lambda: None, quick=False)
    assert shelf.asked == [[1], [2]]


def test_a_title_that_a_window_cuts_is_cut_at_each_chunk() -> None:
    title = "a title that is long"
    cutter = Cutter(SizeChunker(16), Window(24, len))
    text = "alpha beta zeta. gamma delta eta. theta iota"
    chunks, _ = cutter.cut(title, text)
    assert len(chunks) > 1
    assert embedded(text, tuple(chunks), lambda: cutter, title=title) is True
    moved = tuple(chunk._replace(start=0) for chunk in chunks)
    assert embedded(text, moved, lambda: cutter, title=title) is False
    assert (
        embedded(text.replace("gamma", "kappa"), tuple(chunks), lambda: cutter, title=title)
        is False
    )


def test_a_copy_of_a_chunk_that_is_not_there_says_nothing_of_the_text() -> None:
    known = Content(True, {"a": 1.0}, {})
    assert verdict(record(), point(copy=copy("anything")), content=known) is None
