"""Chunking: natural cuts, nothing lost but whitespace, never over size, in linear time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evervec import InvalidArgument, SizeChunker
from evervec.chunking import chunk, embedded_text, hash_text, parse_chunker
from evervec.model.records import Chunk
from evervec.stores.ledger import pack_chunks, unpack_chunks

TEXTS = st.text(
    st.one_of(
        st.sampled_from("ab .\n,;:!?。！é\u0301\u200d\U0001f468\U0001f3fd\ufe0f"),  # noqa: RUF001
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=400,
)


def pieces(text: str, size: int = 20) -> list[str]:
    return [text[start:end] for start, end in SizeChunker(size).split(text)]


@given(TEXTS, st.integers(16, 80))
def test_nothing_is_lost_but_whitespace_and_no_piece_is_over_size(text: str, size: int) -> None:
    spans = list(SizeChunker(size).split(text))
    last = 0
    for start, end in spans:
        assert not text[last:start].strip()
        assert 0 < end - start <= size
        piece = text[start:end]
        assert piece == piece.strip()
        last = end
    assert not text[last:].strip()


@given(TEXTS)
def test_a_text_that_fits_is_one_piece(text: str) -> None:
    found = pieces(text, max(16, len(text)))
    assert found == ([text.strip()] if text.strip() else [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("first paragraph\n\nsecond one", ["first paragraph", "second one"]),
        ("first line here\nsecond line", ["first line here", "second line"]),
        ("One sentence. Another follows", ["One sentence.", "Another follows"]),
        ("some words, and more words", ["some words,", "and more words"]),
        ("just a row of words without end", ["just a row of words", "without end"]),
        ("x" * 45, ["x" * 20, "x" * 20, "x" * 5]),
        (
            "東京は日本の首都です。大阪は西にあります。",
            ["東京は日本の首都です。", "大阪は西にあります。"],
        ),
    ],
)
def test_cuts_are_at_the_best_boundary_in_reach(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


def test_letters_keep_their_accents_and_emoji_stay_whole() -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    assert pieces("x" * 18 + family, 20)[0] == "x" * 18
    assert pieces("x" * 19 + "e\u0301" + "y" * 10, 20)[0] == "x" * 19
    assert pieces("x" * 19 + "\U0001f44d\U0001f3fd" + "y", 20)[0] == "x" * 19


def test_an_endless_row_of_accents_is_still_cut() -> None:
    assert all(len(p) <= 20 for p in pieces("e" + "\u0301" * 500))


def test_ten_megabytes_are_cut() -> None:
    assert len(list(SizeChunker(1000).split("word " * 2_000_000))) <= 20_000


@pytest.mark.parametrize("part", ["x", "\n", ". ", " \n", "\u0301"], ids=ascii)
def test_a_megabyte_of_anything_is_cut(part: str) -> None:
    text = part * (1_000_000 // len(part))
    assert all(end - start <= 1000 for start, end in SizeChunker(1000).split(text))


def test_the_work_grows_with_the_text_and_not_faster() -> None:
    """Counted, not timed: how many characters are looked at for each one of the text."""

    class Counting(str):
        __slots__ = ()
        looked = 0

        def __getitem__(self, key: object) -> str:
            if isinstance(key, slice):
                Counting.looked += len(range(*key.indices(len(self))))
            return super().__getitem__(key)  # type: ignore[index]

    looked = []
    for count in (1000, 4000):
        Counting.looked = 0
        list(SizeChunker(100).split(Counting("some words here. " * count)))
        looked.append(Counting.looked / count)
    assert looked[1] <= looked[0] * 1.1


def test_a_hundred_thousand_chunks_have_their_hashes() -> None:
    text = "\n\n".join(f"piece {n:06}." for n in range(100_000))
    chunks, texts = chunk(SizeChunker(20), None, text)
    assert len(chunks) == 100_000
    assert len({c.hash for c in chunks}) == 100_000
    assert texts[-1] == "piece 099999."


def test_a_piece_is_known_wherever_it_moved() -> None:
    a, b, c = ("alpha " * 8, "beta " * 8, "gamma " * 8)
    before, _ = chunk(SizeChunker(64), None, f"{a}\n\n{b}\n\n{c}")
    after, _ = chunk(SizeChunker(64), None, f"{c}\n\n{a}\n\n{b}")
    assert {p.hash for p in before} == {p.hash for p in after}


def test_the_title_is_a_part_of_what_is_hashed() -> None:
    plain, _ = chunk(SizeChunker(), None, "text")
    titled, texts = chunk(SizeChunker(), "Title", "text")
    assert plain[0].hash != titled[0].hash
    assert texts == ["Title\n\ntext"] == [embedded_text("Title", "text", 0, 4)]


def test_chunkers_are_named_by_what_they_do() -> None:
    default = SizeChunker()
    assert parse_chunker("", default) is default
    assert parse_chunker("size:1000", default) is default
    small = parse_chunker("size:50", default)
    assert isinstance(small, SizeChunker)
    assert small.size == 50
    assert parse_chunker("lines", default) is None
    assert parse_chunker("size:many", default) is None


def test_a_chunk_too_small_to_hold_words_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="16"):
        SizeChunker(15)


@given(
    st.lists(
        st.builds(
            Chunk,
            st.binary(min_size=16, max_size=16),
            st.integers(0, 2**32 - 1),
            st.integers(0, 2**32 - 1),
        )
    )
)
def test_the_ledger_gives_back_what_was_packed(chunks: list[Chunk]) -> None:
    assert unpack_chunks(pack_chunks(chunks)) == tuple(chunks)


def test_hashes_are_the_same_on_every_machine() -> None:
    assert hash_text("text").hex() == "d732c6be860e019351f99173fa6ae612"
