"""How texts are put into batches."""

from hypothesis import given
from hypothesis import strategies as st

from evervec.embedders.encoder import MAX_BATCH_TEXTS, MAX_BATCH_TOKENS, pack


@given(st.lists(st.integers(0, 5000), max_size=200))
def test_every_text_is_in_one_batch_and_batches_are_small(lengths: list[int]) -> None:
    batches = pack(lengths)
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[place] for place in batch)
        assert len(batch) <= MAX_BATCH_TEXTS
        assert len(batch) == 1 or len(batch) * longest <= MAX_BATCH_TOKENS


def test_texts_of_like_length_are_together() -> None:
    assert pack([3, 150, 5, 128]) == [[1, 3, 2], [0]]
    assert pack([250, 1, 256, 1]) == [[2, 0], [1, 3]]


def test_full_batches_hold_a_multiple_of_a_step() -> None:
    sizes = [len(batch) for batch in pack([10] * 100, 1000, 450, 32)]
    assert sizes == [32, 32, 32, 4]
    assert [len(batch) for batch in pack([10] * 50, 1000, 200, 32)] == [20, 20, 10]
