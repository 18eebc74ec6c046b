"""Title and headings never push a part of the text out of what a model looks at."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import evervec
from evervec.chunking import ContentChunker, SizeChunker, Window, chunk
from evervec.embedders.ollama import cut
from evervec.embedding.registry import chunker_for, window_of
from support.world import KIND, ScriptedEmbedder

LIMIT = 200
WINDOW = Window(LIMIT, len)


class Cutting(ScriptedEmbedder):
    """Looks at so many characters of a text, as Ollama's embedder does."""

    characters = LIMIT


def body_of(words: int) -> list[str]:
    return [f"body{n}" for n in range(words)]


words = st.text(st.sampled_from("abc é字\u0301\n#"), max_size=40)


@given(
    title=st.one_of(st.none(), words.map(lambda word: word * 30), st.integers(0, 900).map("t".__mul__)),
    count=st.integers(1, 300),
    heading=st.integers(0, 190),
)  # fmt: skip
def test_every_word_of_the_body_is_sent_whatever_the_title(
    title: str | None, count: int, heading: int
) -> None:
    body = body_of(count)
    text = f"## {'h' * heading} x\n\n" + " ".join(body)
    _, texts = chunk(chunker_for(Cutting(), 400), title, text, window_of(Cutting()))
    assert all(len(piece) <= LIMIT for piece in texts)
    sent = " ".join(cut(piece, LIMIT) for piece in texts).split()
    assert set(body) <= set(sent)


@given(title=st.text(min_size=1, max_size=400), count=st.integers(1, 60))
def test_a_title_that_fits_changes_no_hash(title: str, count: int) -> None:
    text = " ".join(body_of(count))
    chunker = SizeChunker(100)
    plain, windowed = chunk(chunker, title, text), chunk(chunker, title, text, WINDOW)
    fitting = [len(piece) <= LIMIT for piece in plain[1]]
    pairs = zip(plain[0], windowed[0], strict=True)
    assert [a.hash == b.hash for a, b in pairs] == fitting


@given(context=st.integers(0, 190))
def test_headings_that_do_not_fit_change_no_hash(context: int) -> None:
    text = f"## {'word ' * (context // 5)}x\n\n" + " ".join(body_of(200))
    chunker = ContentChunker(160)
    plain, windowed = chunk(chunker, "A title", text), chunk(chunker, "A title", text, WINDOW)
    assert plain[0] == windowed[0]


def test_a_title_is_cut_at_a_word_and_before_the_headings_go() -> None:
    title = "one two three " * 20
    _, (sent,) = chunk(SizeChunker(100), title, "the body", WINDOW)
    head, body = sent.rsplit("\n\n", 1)
    assert body == "the body"
    assert len(sent) > LIMIT - 10
    assert title.startswith(head + " ")


def test_a_piece_that_is_too_large_by_itself_keeps_its_title() -> None:
    _, (sent,) = chunk(SizeChunker(1000), "title", "x" * 300, WINDOW)
    assert sent == "title\n\n" + "x" * 300


@pytest.mark.parametrize("characters", [16, 100, 2000, 8000])
def test_chunks_fit_what_an_embedder_takes(characters: int) -> None:
    embedder = Cutting()
    embedder.characters = characters
    assert chunker_for(embedder, 400).most <= max(16, characters)


def test_chunks_of_ordinary_settings_stay_as_they_are() -> None:
    embedder = Cutting()
    embedder.characters = 2000
    assert chunker_for(embedder, 400).spec == "content:400-1600"


def test_a_worker_sends_every_word() -> None:
    embedder = Cutting()
    body = body_of(200)
    with evervec.open("memory:", embedder=embedder) as ev:
        ev.add(KIND, " ".join(body), id="1", title="a long title " * 40)
        ev.process_all()
    assert max(map(len, embedder.texts)) <= LIMIT
    assert set(body) <= {word for text in embedder.texts for word in text.split()}
