"""The headings above a piece are embedded with it, but are not what it is known by."""

from __future__ import annotations

from evervec.chunking import ContentChunker, chunk, embedded_text

BODY = " ".join(["body"] * 70)
TEXT = "\n\n".join(
    ["# Guide { #guide }", BODY, "## Install", BODY, "### Linux ###", BODY, "## C#", BODY]
)
CHUNKER = ContentChunker(400, 100)


def contexts(text: str) -> dict[str, str]:
    return {text[start:end].splitlines()[0]: context for start, end, context in CHUNKER.split(text)}


def test_a_piece_knows_the_headings_above_it() -> None:
    assert contexts(TEXT) == {
        "# Guide { #guide }": "",
        "## Install": "Guide",
        "### Linux ###": "Guide > Install",
        "## C#": "Guide",
    }


def test_a_piece_in_the_middle_of_a_section_knows_its_heading_too() -> None:
    text = "\n\n".join(["# Guide", "## Install", *(f"{n} {BODY}" for n in range(4))])
    pieces = list(CHUNKER.split(text))
    assert pieces[0].context == ""
    assert {piece.context for piece in pieces[1:]} == {"Guide > Install"}


def test_underlined_headings_have_their_depths() -> None:
    text = f"=====\nGuide\n=====\n\n{BODY}\n\nInstall\n-------\n\n{BODY}\n\nLinux\n~~~~~\n\n{BODY}"
    assert list(contexts(text).values()) == ["", "Guide", "Guide > Install"]


def test_front_matter_is_no_heading() -> None:
    text = f"---\ntitle: A page\n---\n\n{BODY}\n\n{BODY}"
    assert {piece.context for piece in CHUNKER.split(text)} == {""}


def test_the_context_is_embedded_between_title_and_piece() -> None:
    _, texts = chunk(CHUNKER, "Handbook", TEXT)
    assert texts[2] == f"Handbook\n\nGuide > Install\n\n### Linux ###\n\n{BODY}"
    _, texts = chunk(CHUNKER, None, TEXT)
    assert texts[0] == f"# Guide {{ #guide }}\n\n{BODY}"


def test_a_changed_heading_changes_the_hash_of_its_own_chunk_only() -> None:
    before, _ = chunk(CHUNKER, "Handbook", TEXT)
    after, texts = chunk(CHUNKER, "Handbook", TEXT.replace("Install", "Set up"))
    changed = [a.hash != b.hash for a, b in zip(after, before, strict=True)]
    assert changed == [False, True, False, False]
    assert "Guide > Set up" in texts[2]


def test_a_changed_title_changes_all() -> None:
    before, _ = chunk(CHUNKER, "Handbook", TEXT)
    after, _ = chunk(CHUNKER, "Manual", TEXT)
    assert not {piece.hash for piece in before} & {piece.hash for piece in after}


def test_with_no_context_what_is_embedded_is_what_is_hashed() -> None:
    assert embedded_text("Title", "some text", 0, 4) == "Title\n\nsome"
    assert embedded_text(None, "some text", 5, 9) == "text"


def test_with_an_overlap_an_edit_reaches_the_next_chunk_and_no_further() -> None:
    chunker = ContentChunker(500, 100, overlap=100)
    sections = [f"## Part {n}\n\n{n} {BODY}" for n in range(9)]
    before, _ = chunk(chunker, None, "\n\n".join(sections))
    sections[4] += " and a little more"
    after, _ = chunk(chunker, None, "\n\n".join(sections))
    known = {piece.hash for piece in before}
    assert [n for n, piece in enumerate(after) if piece.hash not in known] == [4, 5]
