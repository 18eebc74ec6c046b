"""The matrix in memory gives what brute force gives, whatever was added and forgotten."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evervec import DeadlineExceeded, deadline
from evervec.indexes import coarse
from evervec.indexes import matrix as matrices
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


@pytest.fixture(params=["exact", "rounded"])
def first(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compare all exactly, or those that the rounded form leaves, however few they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrices, "_MANY", 1 if request.param == "rounded" else 1 << 60)
        patch.setattr(matrices, "_MOST_EXACT", 1)
        yield


@pytest.mark.usefixtures("first")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MOVES, st.none() | st.sets(st.integers(0, 14), max_size=6))
def test_it_gives_what_brute_force_gives(
    moves: list[tuple[str, Any]], among: set[int] | None
) -> None:
    matrix, points, number = Matrix(SIZE), dict[int, int](), 0
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
            wanted = None if among is None else np.array(sorted(among), np.int64)
            found = matrix.nearest(asked, value, wanted)
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


class Interrupted(Matrix):
    """A matrix in which something happens just as a search begins to read the vectors."""

    meanwhile: Any = None

    def __getattribute__(self, name: str) -> Any:
        if name == "_vectors":
            meanwhile = super().__getattribute__("meanwhile")
            if meanwhile is not None:
                self.meanwhile = None
                meanwhile()
        return super().__getattribute__(name)


@pytest.mark.parametrize("change", ["squeeze", "append"])
def test_a_search_is_right_although_rows_come_or_go_meanwhile(change: str) -> None:
    matrix = Interrupted(SIZE)
    append(matrix, list(range(1, 401)), list(range(1, 401)))
    if change == "squeeze":
        matrix.meanwhile = lambda: matrix.discard(list(range(1, 301)))
    else:
        matrix.meanwhile = lambda: append(matrix, list(range(401, 2001)), list(range(401, 2001)))
    for match in matrix.nearest(unit(350), 10):
        truth = float(unit(match.record) @ unit(350))
        assert match.similarity == pytest.approx(truth, abs=1e-5)
        assert match.hash == hash_of(match.record)


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


@given(st.integers(0, 10**6), st.sampled_from([1, 3, 64, 384]), st.floats(0.0, 12.0))
def test_rough_scores_are_off_by_no_more_than_they_say(seed: int, size: int, spikes: float) -> None:
    """Also for vectors of which few numbers are large, and for a query that is no unit vector."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((50, size)) * np.exp(spikes * random.standard_normal((50, size)))
    rows[0] = 0
    rows = (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)).astype("f4")
    asked = (3 * random.standard_normal(size)).astype("f4")
    scores, off = coarse.rough_scores(coarse.rounded(rows), asked)
    _, (step,), _ = coarse.rounded(asked[None])
    exact = rows.astype("f8") @ asked.astype("f8")
    assert np.abs(scores * float(step) - exact).max() <= off * float(step)


def test_without_simsimd_all_are_compared_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrices, "_MANY", 1)
    monkeypatch.setattr(coarse, "simsimd", None)
    matrix = Matrix(SIZE)
    append(matrix, list(range(1, 101)), list(range(1, 101)))
    assert len(matrix.nearest(unit(5), 7)) == 7
    assert not matrix._rows.is_rounded


def test_where_most_may_be_the_best_all_are_compared_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matrices, "_MANY", 1)
    matrix = Matrix(SIZE)
    same = unit(1).tobytes()
    numbers = list(range(1, 2001))
    matrix.append(numbers, numbers, [hash_of(n) for n in numbers], [same] * len(numbers))
    matrix.discard([7])
    found = matrix.nearest(unit(1), 1999)
    assert sorted(found.records) == [n for n in numbers if n != 7]


@pytest.mark.parametrize("limit", [1, 30, 3000])
def test_many_rows_give_what_one_product_gives(limit: int) -> None:
    matrix, rows = wide(70_001)
    matrix.discard([5])
    found = matrix.nearest(rows[77], limit)
    scores = rows @ rows[77]
    scores[4] = -np.inf
    expected = np.sort(scores)[::-1][:limit]
    assert found.scores == pytest.approx(expected.tolist(), abs=1e-5)
    assert found.records[0] == 78


def test_many_rows_are_multiplied_in_this_thread_and_under_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """BLAS would use every core for each of several searches; and nothing interrupts it."""
    monkeypatch.setattr(matrices, "_MANY", 1 << 60)
    matrix, rows = wide(70_001)
    plain, sizes, clock = matrices._row_products, list[int](), Clock(0.0)

    def counted(block: Any, vector: Any, out: Any) -> None:
        sizes.append(len(block))
        clock.move(1)
        plain(block, vector, out)

    monkeypatch.setattr(matrices, "_row_products", counted)
    matrix.nearest(rows[0], 3)
    assert sum(sizes) == 70_001
    sizes.clear()
    with pytest.raises(DeadlineExceeded), deadline(2, clock):
        matrix.nearest(rows[0], 3)
    assert len(sizes) == 2
