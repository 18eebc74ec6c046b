"""A specification names a content chunker exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evervec.chunking import BYTES, Chunker, ContentChunker, Measure, SizeChunker, parse_chunker
from evervec.errors import InvalidArgument
from evervec.records.kinds import Kind

WORDS = Measure("org/words:v1@2", lambda text: len(text.split()))


def parsed(spec: str, default: Chunker | None = None) -> ContentChunker:
    chunker = parse_chunker(spec, default or SizeChunker())
    assert isinstance(chunker, ContentChunker)
    return chunker


@given(
    most=st.integers(64, 5000),
    least=st.none() | st.integers(0, 20),
    overlap=st.integers(0, 20),
    measure=st.sampled_from([BYTES, WORDS]),
)
def test_it_reads_back_as_the_same_chunker(
    most: int, least: int | None, overlap: int, measure: Measure
) -> None:
    chunker = ContentChunker(most, least, overlap, measure)
    again = parsed(chunker.spec, ContentChunker(measure=measure))
    assert again.spec == chunker.spec
    assert (again.most, again.least, again.overlap, again.measure) == (
        chunker.most,
        chunker.least,
        chunker.overlap,
        measure,
    )


def test_it_says_all_that_decides_where_to_cut() -> None:
    assert ContentChunker().spec == "content:400-1600"
    assert ContentChunker(1000, 100, 50).spec == "content:100-1000+50"
    assert ContentChunker(256, 64, measure=WORDS).spec == "content:64-256@org/words:v1@2"


def test_the_least_may_be_left_out() -> None:
    assert parsed("content:1000").spec == ContentChunker(1000).spec
    assert parsed("content:1000+100").spec == ContentChunker(1000, overlap=100).spec


def test_one_in_a_measure_that_is_not_at_hand_cannot_be_made() -> None:
    assert parse_chunker("content:64-256@others", SizeChunker()) is None
    assert parse_chunker("content:64-256@others", ContentChunker(measure=WORDS)) is None


def test_one_in_bytes_is_in_bytes_whatever_the_default_counts() -> None:
    assert parsed("content:64-256", ContentChunker(measure=WORDS)).measure is BYTES


def test_what_is_none_is_not_read() -> None:
    for spec in ("content", "content:", "content:a", "content:1-", "content:9-99+", "contents:99"):
        assert parse_chunker(spec, SizeChunker()) is None


def test_a_kind_with_it_needs_no_code_in_the_worker() -> None:
    default = SizeChunker()
    assert not Kind("note", chunker=ContentChunker(800)).spec(default).app
    assert Kind("note", chunker=ContentChunker(99, measure=WORDS)).spec(default).app


@pytest.mark.parametrize(
    ("most", "least", "overlap"),
    [(15, 0, 0), (1600, 801, 0), (1600, -1, 0), (1600, 700, 300), (1600, 0, 801), (1600, 0, -1)],
)
def test_bounds_that_make_no_sense_are_refused(most: int, least: int, overlap: int) -> None:
    with pytest.raises(InvalidArgument):
        ContentChunker(most, least, overlap)
