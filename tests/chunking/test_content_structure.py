"""Where the content chunker likes to cut, and what it keeps together."""

from __future__ import annotations

from evervec.chunking import ContentChunker


def prose(characters: int, word: str = "word") -> str:
    return " ".join([word] * (characters // (len(word) + 1)))


def pieces_of(text: str, chunker: ContentChunker) -> list[str]:
    return [text[start:end] for start, end, _ in chunker.split(text)]


def numbered(count: int, form: str) -> list[str]:
    return [form.format(n) for n in range(count)]


def test_a_heading_begins_a_chunk_before_a_paragraph_does() -> None:
    text = "\n\n".join(
        [prose(300, "one"), prose(300, "two"), "## Next", prose(300, "three"), prose(300, "four")]
    )
    first, second = pieces_of(text, ContentChunker(1000, 100))
    assert first.endswith("two")
    assert second.startswith("## Next")


def test_a_higher_heading_begins_a_chunk_before_a_lower_one_does() -> None:
    parts = [prose(250, "one"), "### Low", prose(250, "two"), "## High", prose(250, "three")]
    pieces = pieces_of("\n\n".join([*parts, "### Low too", prose(250, "four")]), _to(700))
    assert pieces[1].startswith("## High")


def test_an_underlined_heading_is_one_too() -> None:
    for rule in ("=====", "-----", "~~~~~"):
        text = f"{prose(300, 'one')}\n\n{prose(300, 'two')}\n\nTitle\n{rule}\n\n{prose(500)}"
        assert pieces_of(text, ContentChunker(800, 100))[1].startswith("Title\n")


def test_a_heading_stays_with_what_follows() -> None:
    text = "\n\n".join(f"## Part {n}\n\n{prose(450)}" for n in range(20))
    for piece in pieces_of(text, ContentChunker(600, 150)):
        assert piece.startswith("## Part")
        assert "word" in piece


def test_fenced_code_that_fits_is_never_cut() -> None:
    code = "\n\n".join(numbered(12, "def f{0}():\n    return {0}"))
    for fence in ("```", "~~~", "````"):
        block = f"{fence}python\n{code}\n{fence}"
        text = "\n\n".join([prose(500), "For example:", block, prose(500), block, prose(300)])
        pieces = pieces_of(text, ContentChunker(600, 150))
        assert sum(block in piece for piece in pieces) == 2


def test_a_heading_within_a_fence_is_none() -> None:
    block = "\n".join(["```", prose(100), "", "# comment", "", prose(100), "```"])
    text = "\n\n".join([prose(150, "one"), block, "## Real", prose(250)])
    first, second = ContentChunker(500, 50).split(text)
    assert text[second.start :].startswith("## Real")
    assert (first.context, second.context) == ("", "")


def test_code_that_is_too_large_is_cut_between_its_functions() -> None:
    code = "\n\n".join(numbered(60, "def f{0}():\n    a = {0}\n    return a + {0}"))
    for piece in pieces_of(f"```python\n{code}\n```", ContentChunker(800))[1:]:
        assert piece.startswith("def f")


def test_a_program_is_cut_between_its_functions() -> None:
    methods = numbered(6, "    def m{0}(self):\n        a = {0}\n\n        return a")
    code = "\n\n\n".join(f"class C{n}:\n" + "\n\n".join(methods) for n in range(12))
    for piece in pieces_of(code, ContentChunker(800, 200)):
        assert piece.startswith("class C")


def test_a_comment_above_a_function_is_no_heading() -> None:
    code = "\n\n".join(numbered(40, "# about f{0}\ndef f{0}():\n    return {0}"))
    assert {piece.context for piece in ContentChunker(200).split(code)} == {""}


def test_a_fence_that_is_left_open_hides_no_heading() -> None:
    text = "\n\n".join(["```python", prose(300), "## Next", prose(300)])
    assert pieces_of(text, ContentChunker(400, 100))[1].startswith("## Next")
    text = "\n\n".join(["```python", prose(300), "```sh\nls\n```", "## Next", prose(300)])
    assert pieces_of(text, ContentChunker(400, 100))[1].startswith("## Next")


def test_a_list_is_cut_between_its_items() -> None:
    for mark in ("-", "*", "7."):
        text = "\n".join(f"{mark} {prose(90, 'item')}\n  and more of {n}" for n in range(40))
        for piece in pieces_of(text, ContentChunker(500)):
            assert piece.startswith(mark)


def test_items_below_an_item_stay_with_it_before_others_do() -> None:
    text = "\n".join(f"- item {n}\n  - below {prose(40)}\n  - below {prose(40)}" for n in range(30))
    for piece in pieces_of(text, ContentChunker(400, 100)):
        assert piece.startswith("- item")


def test_a_table_that_fits_is_never_cut() -> None:
    table = "\n".join(["| a | b |", "|---|---|", *numbered(20, "| row {0} | value |")])
    text = "\n\n".join([prose(300), table, prose(300), table])
    assert sum(table in piece for piece in pieces_of(text, ContentChunker(600))) == 2


def test_a_table_that_is_too_large_is_cut_between_its_rows() -> None:
    table = "\n".join(["| a | b |", "|---|---|", *numbered(100, "| row {0} | value |")])
    for piece in pieces_of(table, ContentChunker(400)):
        assert piece.startswith("|")
        assert piece.endswith("|")


def test_a_long_paragraph_is_cut_between_sentences() -> None:
    text = " ".join(numbered(100, "This is sentence {0}, which has a clause."))
    for piece in pieces_of(text, ContentChunker(400)):
        assert piece.startswith("This is")
        assert piece.endswith(".")


def test_a_long_paragraph_of_chinese_is_cut_between_sentences() -> None:
    text = "".join(numbered(100, "\u8fd9\u662f\u7b2c{0}\u4e2a\u53e5\u5b50\u3002"))
    for piece in pieces_of(text, ContentChunker(200)):
        assert piece.endswith("\u3002")


def test_a_long_sentence_is_cut_between_words() -> None:
    for piece in pieces_of(prose(3000, "several"), ContentChunker(400)):
        assert set(piece.split()) == {"several"}


def test_what_a_colon_announces_stays_with_it_if_there_is_another_place() -> None:
    text = "\n\n".join(part for n in range(40) for part in (f"{prose(60)} see {n}:", prose(80)))
    for piece in pieces_of(text, ContentChunker(500, 100)):
        assert not piece.endswith(":")


def test_lines_end_as_they_like() -> None:
    text = "\n\n".join(["## One", prose(300), "## Two", prose(300)]).replace("\n", "\r\n")
    first, second = pieces_of(text, ContentChunker(400, 100))
    assert first.startswith("## One\r\n")
    assert second.startswith("## Two\r\n")


def _to(most: int) -> ContentChunker:
    return ContentChunker(most, most // 5)
