"""What holds for the pieces of any text."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evervec.chunking import BYTES, ContentChunker, Measure, Piece
from evervec.chunking.characters import parts_character

_MARKUP = (
    "", "", "# Title", "## Part", "### Detail", "```python", "```", "~~~", "- item", "1. first",
    "    code", "| a | b |", "|---|---|", "Title\n=====", "Behind a colon:", "\t\tdeep",
)  # fmt: skip
_JOINED = "\u5b57\u3002e\u0301\u0308 \U0001f469\u200d\U0001f467\U0001f1e9\U0001f1ea"
_LINES = st.one_of(
    st.sampled_from(_MARKUP),
    st.text(max_size=60),
    st.text("abc xyz. ", max_size=150),
    st.text(_JOINED, max_size=60),
)
TEXTS = st.one_of(st.lists(_LINES, max_size=25).map("\n".join), st.text(_JOINED, max_size=300))
CHUNKERS = st.builds(
    ContentChunker,
    st.sampled_from([32, 100, 400]),
    st.sampled_from([0, 5, 12]),
    st.sampled_from([0, 0, 8]),
)
WORDS = Measure("words", lambda text: len(text.split()))


@given(TEXTS, CHUNKERS)
def test_pieces_are_in_order_and_cover_all_but_space(text: str, chunker: ContentChunker) -> None:
    pieces = list(chunker.split(text))
    at = 0
    for piece in pieces:
        assert piece.start < piece.end <= len(text)
        assert not text[at : piece.start].strip(), "nothing is left out between two pieces"
        if not chunker.overlap:
            assert piece.start >= at
        at = piece.end
    assert not text[at:].strip()


@given(st.lists(TEXTS, max_size=6), CHUNKERS)
def test_texts_split_together_have_the_pieces_that_each_has_alone(
    texts: list[str], chunker: ContentChunker
) -> None:
    for measure in (WORDS, BYTES):

        def count_all(given: Sequence[str], measure: Measure = measure) -> list[int]:
            return [measure.count(text) for text in given]

        counting = Measure(measure.name, measure.count, count_all)
        together = ContentChunker(chunker.most, chunker.least, chunker.overlap, counting)
        alone = ContentChunker(chunker.most, chunker.least, chunker.overlap, measure)
        assert together.split_all(texts) == [alone.split(text) for text in texts]


@given(TEXTS, CHUNKERS)
def test_no_piece_is_larger_than_most_unless_it_is_one_character(
    text: str, chunker: ContentChunker
) -> None:
    for start, end, _ in chunker.split(text):
        one = all(parts_character(text, at) for at in range(start + 1, end))
        assert BYTES.count(text[start:end]) <= chunker.most or one


@example("0\x80\U00010000\U00010000\u3002\u200d\n# Title", ContentChunker(32, 0, 8))
@given(TEXTS, CHUNKERS)
def test_no_cut_parts_a_character(text: str, chunker: ContentChunker) -> None:
    for start, end, _ in chunker.split(text):
        assert not parts_character(text, start)
        assert not parts_character(text, end)


@given(TEXTS, CHUNKERS)
def test_the_same_text_is_always_cut_the_same_way(text: str, chunker: ContentChunker) -> None:
    again = ContentChunker(chunker.most, chunker.least, chunker.overlap)
    assert list(chunker.split(text)) == list(again.split(text))


@given(TEXTS)
def test_sizes_are_counted_by_the_measure_that_is_given(text: str) -> None:
    for start, end, _ in ContentChunker(20, measure=WORDS).split(text):
        assert WORDS.count(text[start:end]) <= 20


@given(TEXTS)
def test_what_fits_is_one_piece(text: str) -> None:
    pieces = list(ContentChunker(100_000).split(text))
    assert [text[p.start : p.end] for p in pieces] == ([text.strip()] if text.strip() else [])


_SYLLABLES = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
_WORDS = [a + b + c for a in _SYLLABLES for b in _SYLLABLES[::3] for c in ("", "n", "st")]


@cache
def page(seed: int, paragraphs: int = 100) -> tuple[str, ...]:
    """Paragraphs of made-up prose, some with a heading above."""
    rng = random.Random(seed)
    made = []
    for number in range(paragraphs):
        text = " ".join(rng.choices(_WORDS, k=rng.randint(10, 70))).capitalize() + "."
        made.append(f"## Part {number}\n\n{text}" if rng.random() < 0.15 else text)
    return tuple(made)


def pieces_of(text: str, chunker: ContentChunker) -> list[str]:
    return [text[start:end] for start, end, _ in chunker.split(text)]


@given(
    seed=st.integers(0, 20),
    place=st.integers(0, 99),
    edit=st.sampled_from(["insert", "delete", "replace", "append"]),
    joint=st.sampled_from(["\n\n", "\n", " "]),
    overlap=st.sampled_from([0, 100]),
)
def test_an_edit_changes_only_the_chunks_around_it(
    seed: int, place: int, edit: str, joint: str, overlap: int
) -> None:
    before, new = page(seed), page(seed + 1000, 1)[0]
    after = list(before)
    if edit == "insert":
        after.insert(place, new)
    elif edit == "delete":
        del after[place]
    elif edit == "replace":
        after[place] = new
    else:
        after[place] += " " + new
    chunker = ContentChunker(1200, 300, overlap)
    known = set(pieces_of(joint.join(before), chunker))
    found = pieces_of(joint.join(after), chunker)
    assert len(found) >= 25
    changed = [number for number, piece in enumerate(found) if piece not in known]
    assert len(changed) <= 6
    assert not changed or changed[-1] - changed[0] <= 8


def test_edits_of_one_paragraph_embed_little_more_than_one_chunk_on_average() -> None:
    chunker = ContentChunker(1200, 300)
    again = 0
    for seed in range(40):
        before = page(seed)
        after = list(before)
        after.insert(2 * seed, page(seed + 1000, 1)[0])
        known = set(pieces_of("\n\n".join(before), chunker))
        again += sum(piece not in known for piece in pieces_of("\n\n".join(after), chunker))
    assert again <= 80  # an insertion of a third of a chunk also adds a third of a chunk


@pytest.mark.parametrize("alphabet", ["abcdefghijklmnop", "漢字仮名交文章分割安定"])
def test_text_without_any_space_is_cut_by_its_content_too(alphabet: str) -> None:
    rng = random.Random(4)
    text = "".join(rng.choices(alphabet, k=60_000))
    chunker = ContentChunker(1200, 300)
    known = set(pieces_of(text, chunker))
    found = pieces_of(text[:100] + "x" + text[100:], chunker)
    assert sum(piece not in known for piece in found) <= 4 < len(found) // 10


def test_lines_that_begin_alike_are_told_apart_by_the_rest() -> None:
    rng = random.Random(5)
    log = [
        f"2026-01-01T00:00:00.000Z INFO evervec.worker: wrote batch {rng.random()}"
        for _ in range(2000)
    ]
    chunker = ContentChunker(1200, 300)
    known = set(pieces_of("\n".join(log), chunker))
    found = pieces_of("\n".join([*log[:5], "one more", *log[5:]]), chunker)
    assert sum(piece not in known for piece in found) <= 4 < len(found) // 10


def test_neighbours_do_not_overlap_unless_told() -> None:
    text = "\n\n".join(page(1))
    for left, right in pairwise(ContentChunker(800).split(text)):
        assert left.end <= right.start


def test_an_overlap_reaches_into_the_piece_before_and_no_further() -> None:
    text = "\n\n".join(page(2))
    chunker = ContentChunker(800, overlap=150)
    pieces = list(chunker.split(text))
    shared = [max(0, left.end - right.start) for left, right in pairwise(pieces)]
    assert max(shared) <= 150
    assert sum(share > 20 for share in shared) > len(shared) / 2
    for before, left, right in zip(pieces, pieces[1:], pieces[2:], strict=False):
        assert before.end <= right.start
        assert left.end <= right.end


def test_an_overlap_begins_with_a_sentence_where_one_fits() -> None:
    text = "\n\n".join(f"Sentence {n} is here. It says {n * n} and no more." for n in range(80))
    for piece in list(ContentChunker(400, overlap=80).split(text))[1:]:
        assert text[piece.start : piece.end].startswith(("Sentence", "It says"))


def test_an_empty_text_has_no_pieces() -> None:
    assert list(ContentChunker().split("")) == []
    assert list(ContentChunker().split(" \n\t\r\n\u2003")) == []
    assert list(ContentChunker().split(" a ")) == [Piece(1, 2)]
