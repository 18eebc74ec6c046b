"""The matrix in memory gives what brute force gives, whatever was added and forgotten."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evervec import DeadlineExceeded, deadline
from evervec.indexes import matrix as matrices
from evervec.indexes import sketch
from evervec.indexes.matrix import Matrix
from support.world import Clock

SIZE = 4


def unit(seed: int) -> NDArray[np.float32]:
    row = np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)
    return np.asarray(row / np.linalg.norm(row), np.float32)


def hash_of(point: int) -> bytes:
    return point.to_bytes(16, "big")


def append(matrix: Matrix, points: list[int], records: list[int]) -> None:
    matrix.append(
        points, records, [hash_of(p) for p in points], [unit(p).tobytes() for p in points]
    )


def brute(
    points: dict[int, int], asked: NDArray[np.float32], limit: int, among: set[int] | None
) -> list[tuple[int, bytes]]:
    """The best point of each record, by plain Python."""
    best: dict[int, tuple[float, int]] = {}
    for point, record in points.items():
        if among is not None and record not in among:
            continue
        score = (float(unit(point) @ asked), -point)
        best[record] = max(best.get(record, (-9.0, 0)), score)
    order = sorted(best.items(), key=lambda kv: (-kv[1][0], -kv[1][1]))
    return [(record, hash_of(-point)) for record, (_, point) in order[:limit]]


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 12), min_size=1, max_size=60)),
        st.tuples(st.just("discard"), st.lists(st.integers(0, 400), min_size=1, max_size=90)),
        st.tuples(st.just("search"), st.integers(1, 20)),
    ),
    min_size=1,
    max_size=14,
)


@pytest.fixture(params=["exact", "sketched", "read"])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[[], Matrix]]:
    """Compare all exactly; or those that sketches choose, however few there are; and read these
    from the store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrices, "_MANY", 1 << 60 if request.param == "exact" else 1)
        yield lambda: Matrix(SIZE, stored, 0 if request.param == "read" else None)


def stored(points: list[int]) -> list[tuple[int, bytes, bytes]]:
    return [(p, hash_of(p), unit(p).tobytes()) for p in points]


class Chosen:
    """A filter that some records fit."""

    def __init__(self, records: set[int], *, is_known: bool = False) -> None:
        self.is_repeated = is_known
        self._is_known = is_known
        self._records = np.array(sorted(records), np.int64)

    def known(self) -> NDArray[np.int64] | None:
        return self._records if self._is_known else None

    def all(self) -> NDArray[np.int64]:
        return self._records

    def among(self, records: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.intersect1d(records, self._records)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MOVES, st.none() | st.sets(st.integers(0, 14), max_size=6), st.booleans())
def test_it_gives_what_brute_force_gives(
    make: Callable[[], Matrix], moves: list[tuple[str, Any]], among: set[int] | None, known: bool
) -> None:
    matrix, points, number = make(), dict[int, int](), 0
    for move, value in [*moves, ("search", 7)]:
        if move == "append":
            fresh = {number + 2 * n + 1: record for n, record in enumerate(value)}
            number = max(fresh)
            append(matrix, list(fresh), list(fresh.values()))
            points |= fresh
        elif move == "discard":
            matrix.discard(value)
            points = {p: r for p, r in points.items() if p not in value}
        else:
            asked = unit(value)
            chosen = None if among is None else Chosen(among, is_known=known)
            found = matrix.nearest(asked, value, chosen)
            expected = brute(points, asked, value, among)
            assert [(m.record, m.hash) for m in found] == expected
            for match in found:
                point = int.from_bytes(match.hash, "big")
                assert match.similarity == pytest.approx(float(unit(point) @ asked), abs=1e-5)
        assert len(matrix) == len(points)


def test_many_chunks_of_one_record_do_not_hide_the_others() -> None:
    matrix = Matrix(SIZE)
    append(matrix, list(range(1, 1001)), [1] * 990 + list(range(2, 12)))
    assert len(matrix.nearest(unit(5), 11)) == 11


def test_forgotten_rows_are_squeezed_out() -> None:
    matrix = Matrix(SIZE)
    append(matrix, list(range(1, 10_001)), list(range(1, 10_001)))
    large = matrix.nbytes
    matrix.discard(list(range(1, 9_001)))
    assert len(matrix) == 1000
    assert matrix.nbytes < large / 4
    assert len(matrix.nearest(unit(1), 5000)) == 1000


def test_a_fork_is_changed_unnoticed_by_those_who_search_the_old_one() -> None:
    old = Matrix(SIZE)
    append(old, [1, 2], [1, 2])
    before = list(old.nearest(unit(1), 9).records)
    new = old.fork()
    new.discard([1])
    append(new, [3], [3])
    assert list(old.nearest(unit(1), 9).records) == before
    assert set(new.nearest(unit(1), 9).records) == {2, 3}


WIDE = 64


def wide(count: int) -> tuple[Matrix, NDArray[np.float32]]:
    """A matrix that is too large for one product, and its vectors."""
    rows = np.random.default_rng(3).standard_normal((count, WIDE)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    matrix, points = Matrix(WIDE), list(range(1, count + 1))
    matrix.append(points, points, [hash_of(p) for p in points], [row.tobytes() for row in rows])
    return matrix, rows


def clustered(count: int, size: int, common: float, seed: int = 4) -> NDArray[np.float32]:
    """Unit vectors around 200 centres, with a direction that all have in common."""
    centres = np.random.default_rng(0).standard_normal((200, size))
    random = np.random.default_rng(seed)
    rows = centres[random.integers(0, 200, count)] + 0.7 * random.standard_normal((count, size))
    rows += common * np.sqrt(size) * np.eye(size)[0]
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("common", [0.0, 3.0])
def test_sketches_lose_few_of_the_nearest(common: float, kept: bool) -> None:
    rows = clustered(40_000, 128, common)
    asked, numbers = clustered(20, 128, common, seed=5), list(range(len(rows)))

    def read(points: list[int]) -> list[tuple[int, bytes, bytes]]:
        assert len(points) < 2000
        return [(p, hash_of(p), rows[p].tobytes()) for p in points]

    matrix = Matrix(128, read, None if kept else 1 << 20)
    for start in range(0, len(rows), 8192):
        some = numbers[start : start + 8192]
        matrix.append(some, some, [hash_of(p) for p in some], [rows[p].tobytes() for p in some])
    assert matrix.sketcher is not None
    assert matrix.keeps_vectors == kept
    assert kept or matrix.nbytes < 70 * len(rows)
    found = 0
    for vector in asked:
        best = np.argsort(-(rows @ vector))[:10]
        hits = matrix.nearest(vector, 10)
        assert hits.scores == pytest.approx((rows[hits.records] @ vector).tolist(), abs=1e-5)
        found += len(set(best.tolist()) & set(hits.records))
    assert found >= 0.99 * 10 * len(asked)


def test_a_filter_is_tested_on_the_best_and_read_whole_when_few_fit() -> None:
    rows = clustered(60_000, 256, 0.0)
    numbers = list(range(len(rows)))
    matrix = Matrix(256)
    matrix.append(numbers, numbers, [hash_of(p) for p in numbers], [r.tobytes() for r in rows])
    asked: list[str] = []

    class Noted(Chosen):
        def all(self) -> NDArray[np.int64]:
            asked.append("all")
            return super().all()

        def among(self, records: NDArray[np.int64]) -> NDArray[np.int64]:
            asked.append("among")
            tested.append(len(records))
            return super().among(records)

    tested: list[int] = []
    for every, expected in ((4, {"among"}), (20_000, {"among", "all"})):
        asked.clear()
        tested.clear()
        wanted = set(numbers[::every])
        hits = matrix.nearest(rows[0], 3, Noted(wanted))
        best = sorted(wanted, key=lambda p: -float(rows[p] @ rows[0]))[:3]
        assert list(hits.records) == best
        assert set(asked) == expected
        assert sum(tested) <= 2048


@pytest.mark.parametrize("size", [20, 64, 100, 512])
def test_sketches_count_the_signs_that_differ_and_estimate_the_score(size: int) -> None:
    rows = clustered(300, size, 1.0)
    sketcher = sketch.Sketcher.of(rows)
    made, query = sketcher.sketch(rows), sketcher.query(rows[3])
    turned = sketch._turned(rows) - sketch._turned(sketcher.mean[None])
    signs = turned >= 0
    differ = sketch.differing(made.bits, query)
    assert differ.tolist() == (signs != signs[3]).sum(axis=1).tolist()
    # the query's numbers are rounded by at most half a step
    exact = np.where(signs, 1, -1) @ turned[3] * made.scale + made.offset
    most = float(query.values[-1]) / 2 * size * made.scale
    error = np.abs(sketch.estimate(made, query) - exact)
    assert (error <= 1.01 * most).all()
    assert error.mean() < 0.15 * most.mean()


@pytest.mark.parametrize("read", [False, True], ids=["written", "read"])
def test_each_word_of_the_bits_stays_one_block_however_the_rows_grow(
    monkeypatch: pytest.MonkeyPatch, read: bool
) -> None:
    """A search reads word by word: across rows, it would take several times as long."""
    monkeypatch.setattr(matrices, "_MANY", 1)
    size, batch = 150, 100
    vectors = np.random.default_rng(1).standard_normal((5 * batch, size)).astype(np.float32)
    sketcher, matrix = sketch.Sketcher.of(vectors), Matrix(size)
    if read:
        matrix.begin_sketched(sketcher, batch)
    for first in range(0, len(vectors), batch):
        numbers, some = np.arange(first, first + batch), vectors[first : first + batch]
        if read:
            matrix.append_sketches(numbers, numbers, sketcher.sketch(some))
        else:
            listed = numbers.tolist()
            rows = [row.tobytes() for row in some]
            matrix.append(listed, listed, list(map(hash_of, listed)), rows)
    matrix.discard(np.arange(0, 300))
    (bits,) = (array for array in matrix._rows.arrays if array.dtype == np.uint64)
    assert bits.shape[1] > 1
    assert bits.flags.f_contiguous


def test_the_query_that_is_the_mean_can_be_compared() -> None:
    rows = clustered(100, 20, 0.0)
    sketcher = sketch.Sketcher.of(rows)
    scores = sketch.estimate(sketcher.sketch(rows), sketcher.query(sketcher.mean))
    assert np.isfinite(scores).all()


def test_equal_vectors_are_all_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrices, "_MANY", 1)
    matrix = Matrix(SIZE)
    same = unit(1).tobytes()
    numbers = list(range(1, 2001))
    matrix.append(numbers, numbers, [hash_of(n) for n in numbers], [same] * len(numbers))
    matrix.discard([7])
    found = matrix.nearest(unit(1), 1999)
    assert sorted(found.records) == [n for n in numbers if n != 7]


@pytest.mark.parametrize("limit", [1, 30, 3000])
def test_many_rows_give_exact_scores(limit: int) -> None:
    """Independent vectors, which are the hardest for sketches: the best of all is found."""
    matrix, rows = wide(70_001)
    matrix.discard([5])
    found = matrix.nearest(rows[77], limit)
    assert found.scores == pytest.approx(
        [float(rows[record - 1] @ rows[77]) for record in found.records], abs=1e-5
    )
    assert found.records[0] == 78
    assert len(found.records) == limit
    assert 5 not in found.records


def test_many_rows_are_multiplied_in_this_thread_and_under_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """BLAS would use every core for each of several searches; and nothing interrupts it."""
    monkeypatch.setattr(matrices, "_MANY", 1 << 60)
    matrix, rows = wide(70_001)
    plain, sizes, clock = np.vecdot, list[int](), Clock(0.0)

    def counted(block: Any, vector: Any, out: Any) -> None:
        sizes.append(len(block))
        clock.move(1)
        plain(block, vector, out=out)

    monkeypatch.setattr(np, "vecdot", counted)
    matrix.nearest(rows[0], 3)
    assert sum(sizes) == 70_001
    sizes.clear()
    with pytest.raises(DeadlineExceeded), deadline(2, clock):
        matrix.nearest(rows[0], 3)
    assert len(sizes) == 2
