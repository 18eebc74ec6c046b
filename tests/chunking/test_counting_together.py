"""Texts of many records are measured together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

import evervec
from evervec.chunking import ContentChunker, Measure, Piece, chunk_all
from evervec.embedders.hashing import HashingEmbedder

_LONG = "First sentence here. Second sentence there. Third one. " * 12


class Counting(HashingEmbedder):
    """Counts words, and the calls for that."""

    def __init__(self) -> None:
        super().__init__()
        self.window = 32
        self.alone = 0
        self.together: list[int] = []

    def count_tokens(self, text: str) -> int:
        self.alone += 1
        return len(text.split())

    def count_all_tokens(self, texts: Sequence[str]) -> list[int]:
        self.together.append(len(texts))
        return [len(text.split()) for text in texts]


def test_a_worker_counts_the_texts_of_many_records_at_once() -> None:
    embedder = Counting()
    with evervec.open("memory:", embedder=embedder) as ev:
        for _ in ev.add_many("note", ({"id": n, "text": f"{n} {_LONG}"} for n in range(200))):
            pass
        embedder.alone = 0
        assert ev.process_all().succeeded == 200
        assert ev.verify().complete
    assert sum(embedder.together) > 200 * 12, "blocks and their sentences"
    assert len(embedder.together) < 30, "levels of division, for some slices"
    assert embedder.alone == 0


def test_as_many_rounds_are_counted_as_the_deepest_text_has_levels() -> None:
    rounds: list[int] = []

    def count_all(texts: Sequence[str]) -> list[int]:
        rounds.append(len(texts))
        return [len(text) for text in texts]

    chunker = ContentChunker(64, measure=Measure("characters", len, count_all))
    chunker.split_all([_LONG, "short " * 20, "x" * 5000] * 50)
    assert len(rounds) < 20
    assert sum(rounds) > 150


class Failing:
    """A chunker of a kind that cannot split some text."""

    spec = "failing"

    def split(self, text: str) -> Iterator[Piece]:
        if "bad" in text:
            raise ValueError("cannot")
        yield Piece(0, len(text))

    def split_all(self, texts: Sequence[str]) -> list[list[Piece]]:
        return [list(self.split(text)) for text in texts]


def test_a_text_that_cannot_be_split_fails_alone() -> None:
    first, second, third = chunk_all(Failing(), [(None, "one"), (None, "bad"), ("t", "three")])
    assert isinstance(second, ValueError)
    assert not isinstance(first, Exception)
    assert not isinstance(third, Exception)
    assert (first[1], third[1]) == (["one"], ["t\n\nthree"])


@pytest.mark.parametrize("answers", [[], [[Piece(0, 1)]], [[Piece(0, 1)]] * 3])
def test_texts_are_split_one_by_one_if_not_each_has_an_answer(answers: list[list[Piece]]) -> None:
    class Miscounting(Failing):
        def split_all(self, texts: Sequence[str]) -> list[list[Piece]]:
            return answers

    found = list(chunk_all(Miscounting(), [(None, "one"), (None, "two")]))
    assert found == list(chunk_all(Failing(), [(None, "one"), (None, "two")]))


class Wide(HashingEmbedder):
    max_batch = 1000

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def embed(self, texts: Sequence[str]):  # type: ignore[no-untyped-def]
        self.calls.append(len(texts))
        return super().embed(texts)


@pytest.mark.parametrize(("batch_size", "most"), [(256, 1000), (50, 50)])
def test_a_model_here_that_embeds_many_at_once_gets_larger_claims(
    batch_size: int, most: int
) -> None:
    embedder = Wide()
    with evervec.open("memory:", embedder=embedder, batch_size=batch_size) as ev:
        for _ in ev.add_many("note", ({"id": n, "text": f"text {n}"} for n in range(3000))):
            pass
        assert ev.process_all().succeeded == 3000
    assert max(embedder.calls) == most
