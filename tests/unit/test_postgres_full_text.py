"""Full text in the form that PostgreSQL reads: whatever the text is, the server accepts it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evervec.stores.postgres.full_text import all_of, any_of, phrases, vector_text
from support import postgres


def read(text: str) -> str:
    ((vector,),) = postgres.execute(postgres.server_url(), "select $1::tsvector::text", text)
    return str(vector)


def query_of(terms: list[str]) -> str:
    return any_of(phrases(terms))


def finds(terms: list[str], title: str, text: str) -> bool:
    found = "select $1::tsvector @@ $2::tsquery"
    ((is_found,),) = postgres.execute(
        postgres.server_url(), found, vector_text(title, text), query_of(terms)
    )
    return bool(is_found)


def test_words_of_title_and_text_are_numbered_on() -> None:
    assert vector_text("Running dogs", "A dog: runs!") == "run:1A dog:2A a:3B dog:4B run:5B"
    assert read(vector_text("", "runs, ran; running")) == "'ran':2B 'run':1B,3B"


def test_a_phrase_is_found_where_its_words_follow_each_other() -> None:
    assert query_of(["running dogs", "cat", "…"]) == "'run' <-> 'dog' | 'cat'"
    assert finds(["running dogs"], "", "he runs dogs")
    assert not finds(["running dogs"], "", "dogs run")
    assert finds(["dogs run"], "many dogs", "run")


def test_all_of_several_words_and_phrases() -> None:
    assert all_of(phrases(["running dogs", "cat", "cats"])) == "('run' <-> 'dog') & ('cat')"


def test_a_query_without_words_is_empty() -> None:
    assert query_of(["…", "--"]) == ""


def test_a_word_that_is_too_long_is_left_out_alone() -> None:
    for long in ("x" * 2047, "中" * 683):
        assert read(vector_text("", f"cat {long} dog")) == "'cat':1B 'dog':2B"
    assert finds(["x" * 2046], "", "x" * 2046)


@pytest.mark.parametrize("title", ["", "title " * 20_000], ids=["no title", "long title"])
def test_positions_end_where_those_of_a_tsvector_end(title: str) -> None:
    vector = vector_text(title, "word " * 20_000 + "last")
    assert vector.endswith(":16383B")
    assert "'last':16383B" in read(vector)


def test_a_text_of_different_words_fits() -> None:
    read(vector_text("", " ".join(f"{n:05x}" for n in range(100_000))))
    read(vector_text("", " ".join(map(chr, range(0x4E00, 0x9FFF))) * 10))


@given(st.text(), st.text())
def test_any_text_can_be_read(title: str, text: str) -> None:
    read(vector_text(title.replace("\0", ""), text.replace("\0", "")))
    postgres.execute(postgres.server_url(), "select $1::tsquery", query_of([title, text]))
