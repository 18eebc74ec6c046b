"""What is read from a file of each format, and where in it a part of the text is."""

from __future__ import annotations

import json
import os
import resource
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from evervec.files.document import Document, Unreadable
from evervec.files.formats import LARGEST_TEXT, Readers, type_of
from evervec.files.pdf import PdfReader
from evervec.files.places import place_of, written_lines
from support.documents import paragraph, write_pdf, write_word


@pytest.fixture
def readers() -> Iterator[Readers]:
    with Readers() as readers:
        yield readers


def read(readers: Readers, path: Path, content: str | bytes) -> Document:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return readers.read(path)[0]


def place(document: Document, path: Path, part: str) -> tuple[str, str, str] | None:
    metadata = {"path": path.name, "type": type_of(path)}
    if document.lines:
        metadata["lines"] = written_lines(document.lines)
    return place_of(document.text, metadata, document.text.index(part))


def test_markdown_has_its_heading_or_front_matter_as_title(
    readers: Readers, tmp_path: Path
) -> None:
    path = tmp_path / "a.md"
    document = read(readers, path, "intro\n\n# Tea and *rain* #\n\ntext\n")
    assert document.title == "Tea and *rain*"
    assert place(document, path, "text") == ("line", "5", "")
    assert read(readers, path, '---\ntitle: "Hills"\n---\n# Tea\n').title == "Hills"
    assert read(readers, path, "Tea\n===\n\ntext\n").title == "Tea"


def test_restructured_text_has_its_first_underlined_line_as_title(
    readers: Readers, tmp_path: Path
) -> None:
    path = tmp_path / "a.rst"
    document = read(readers, path, ".. comment\n\n=====\nTides\n=====\n\nThe moon.\n")
    assert document.title == "Tides"
    assert place(document, path, "The moon") == ("line", "7", "")


def test_plain_text_has_a_title_only_if_its_first_line_stands_alone(
    readers: Readers, tmp_path: Path
) -> None:
    path = tmp_path / "a.txt"
    assert read(readers, path, "Shopping list\n\nmilk\n").title == "Shopping list"
    assert read(readers, path, "Buy milk.\n\nAnd bread.\n").title is None
    assert read(readers, path, "one\ntwo\n").title is None


def test_html_has_headings_code_lists_and_the_lines_of_its_source(
    readers: Readers, tmp_path: Path
) -> None:
    path = tmp_path / "a.html"
    document = read(
        readers, path,
        "<html><head><title>The\n Moon</title><style>p {}</style></head>\n<body>\n"
        "<h2>Tides</h2>\n<p>They follow\nthe <b>moon</b>.</p><script>x()</script>\n"
        "<ul><li>spring<li>neap</ul>\n<pre>\nfor x:\n    y\n</pre>"
        "<table><tr><td>a<td>b</table></body></html>",
    )  # fmt: skip
    assert document.title == "The Moon"
    assert document.text == (
        "## Tides\n\nThey follow the moon.\n\n- spring\n\n- neap\n\n```\nfor x:\n    y\n```\n\na | b"
    )
    assert place(document, path, "## Tides") == ("line", "4", "")
    assert place(document, path, "the moon") == ("line", "5", "")
    assert place(document, path, "neap") == ("line", "7", "")


def test_a_page_of_many_blocks_keeps_few_lines(readers: Readers, tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    document = read(readers, path, "\n".join(f"<p>word{n}</p>" for n in range(50_000)))
    assert len(written_lines(document.lines)) < 10_000
    found = place(document, path, "word40000")
    assert found is not None
    assert abs(int(found[1]) - 40_001) < 500


def test_a_page_is_read_in_the_encoding_that_it_declares(readers: Readers, tmp_path: Path) -> None:
    page = '<meta charset="iso-8859-1"><p>Café</p>'.encode("latin-1")
    assert read(readers, tmp_path / "a.html", page).text == "Café"
    with pytest.raises(Unreadable, match="encoding klingon is unknown"):
        read(readers, tmp_path / "b.html", b"<meta charset=klingon><p>\xe9</p>")
    with pytest.raises(Unreadable, match=r"encoding zip is unknown|not UTF-8"):
        read(readers, tmp_path / "c.html", b"<meta charset=zip><p>\xe9</p>")


def test_python_has_its_docstring_as_title_and_definitions_around_a_place(
    readers: Readers, tmp_path: Path
) -> None:
    path = tmp_path / "a.py"
    document = read(
        readers, path,
        '"""Grows tea.\n\nMore."""\n\nclass Garden:\n    @property\n    def rows(self):\n'
        "        def one():\n            return 'leaf'\n        return one\n\nx = 1\n",
    )  # fmt: skip
    assert document.title == "Grows tea"
    assert place(document, path, "return 'leaf'") == (
        "line", "9", "class Garden > def rows > def one",
    )  # fmt: skip
    assert place(document, path, "x = 1") == ("line", "12", "")
    broken = read(readers, path, "class Garden:\n    def rows(self:\n        leaf\n")
    assert place(broken, path, "leaf") == ("line", "3", "class Garden > def rows")


@pytest.mark.parametrize(
    ("name", "source", "inside"),
    [
        ("a.js", "export class A {\n  x() {}\n}\nasync function run(a) {\n  here\n}\n", "function run"),
        ("a.go", "func (s *Server) Run(a int) {\n\there\n}\n", "func Run"),
        ("a.rs", "impl Tree {\n    pub fn grow(&self) {\n        here\n    }\n}\n", "impl Tree > fn grow"),
        ("a.rb", "module M\n  def tea\n    here\n  end\nend\n", "module M > def tea"),
        ("a.java", "public class A {\n  int x;\n}\n// here\n", ""),
    ],
)  # fmt: skip
def test_other_languages_have_definitions_by_their_indent(
    readers: Readers, tmp_path: Path, name: str, source: str, inside: str
) -> None:
    found = place(read(readers, tmp_path / name, source), tmp_path / name, "here")
    assert found is not None
    assert found[2] == inside


def test_a_notebook_has_its_cells_and_their_numbers(readers: Readers, tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    cells = [
        {"cell_type": "markdown", "source": ["# Rainfall\n", "by month"]},
        {"cell_type": "code", "source": "plot(rain)", "outputs": [{"text": "secret output"}]},
        {"cell_type": "markdown", "source": []},
        {"cell_type": "markdown", "source": "It rains in June."},
    ]
    document = read(readers, path, json.dumps({"cells": cells}))
    assert document.title == "Rainfall"
    assert "```\nplot(rain)\n```" in document.text
    assert "secret" not in document.text
    assert place(document, path, "plot") == ("cell", "2", "")
    assert place(document, path, "June") == ("cell", "4", "")
    for bad in (
        "[" * 100_000,
        "{}",
        "[]",
        '{"cells": 3}',
        "no json",
        '{"cells": [1, {"source": 7}]}',
    ):
        with pytest.raises(Unreadable):
            read(readers, path, bad)


def test_a_pdf_has_pages(readers: Readers, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", ["Tea is grown on hills.", "", "Rain falls."], "On tea")
    document, _ = readers.read(path)
    assert document.title == "On tea"
    assert place(document, path, "Tea") == ("page", "1", "")
    assert place(document, path, "Rain") == ("page", "3", "")


def test_a_bad_pdf_is_named_and_the_next_is_read(readers: Readers, tmp_path: Path) -> None:
    good = write_pdf(tmp_path / "good.pdf", ["Tea."])
    for bad in (b"", b"%PDF-1.4\nnothing", os.urandom(1000)):
        (tmp_path / "bad.pdf").write_bytes(bad)
        with pytest.raises(Unreadable):
            readers.read(tmp_path / "bad.pdf")
    with pytest.raises(Unreadable, match="scanned"):
        readers.read(write_pdf(tmp_path / "bad.pdf", ["", ""]))
    assert readers.read(good)[0].text == "Tea."


def test_a_pdf_that_takes_too_long_is_given_up_and_the_next_is_read(tmp_path: Path) -> None:
    reader = PdfReader(seconds=0.0)
    path = write_pdf(tmp_path / "a.pdf", ["Tea."])
    with pytest.raises(Unreadable, match="longer than 0 s"):
        reader.read(path)
    reader._seconds = 60.0
    assert reader.read(path).text == "Tea."
    reader.close()


def test_a_pdf_that_unpacks_to_gigabytes_does_not_take_them(
    readers: Readers, tmp_path: Path
) -> None:
    packed = zlib.compress(zlib.compress(b"\0" * (1 << 27), 1), 9)
    path = write_pdf(tmp_path / "a.pdf", ["X"])
    drawn = b"<< /Length %d /Filter [/FlateDecode /FlateDecode] >>\nstream\n%s\nendstream"
    content = path.read_bytes().replace(
        b"<< /Length 32 >>\nstream\nBT /F1 12 Tf 72 720 Td (X) Tj ET\nendstream",
        drawn % (len(packed), packed),
    )
    assert packed in content
    path.write_bytes(content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Unreadable):
        readers.read(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB, of ours


def test_a_word_document_has_headings_tables_and_pages(readers: Readers, tmp_path: Path) -> None:
    row = (
        "<w:tbl><w:tr>" + "".join(f"<w:tc>{paragraph(t)}</w:tc>" for t in "ab") + "</w:tr></w:tbl>"
    )
    body = (
        paragraph("Report", "Title") + paragraph("Rain", "Heading2") + paragraph("It rained.") + row
        + paragraph("Next page.", before="<w:lastRenderedPageBreak/>")
    )  # fmt: skip
    path = write_word(tmp_path / "a.docx", body)
    document, _ = readers.read(path)
    assert document.title == "Report"
    assert document.text == "# Report\n\n## Rain\n\nIt rained.\n\na | b\n\n\fNext page."
    assert place(document, path, "It rained") == ("page", "1", "")
    assert place(document, path, "Next") == ("page", "2", "")
    assert readers.read(write_word(path, paragraph("x"), title="Named"))[0].title == "Named"


def test_a_hostile_word_document_is_refused(readers: Readers, tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    bomb = paragraph("x" * 70_000_000)
    entities = '<!DOCTYPE d [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    for body, before, why in (
        (bomb, "", "larger than 64 MB"),
        ("<w:p>" * 10_000, "", "nested too deeply|not a readable"),
        (paragraph("&b;"), entities, "document type"),
        ("<w:p>", "", "not a readable Word document"),
    ):
        write_word(path, body, before=before)
        with pytest.raises(Unreadable, match=why):
            readers.read(path)
    for bad in (b"", b"PK\x03\x04 not really", os.urandom(500)):
        path.write_bytes(bad)
        with pytest.raises(Unreadable):
            readers.read(path)


def test_subtitles_are_paragraphs_with_their_times(readers: Readers, tmp_path: Path) -> None:
    path = tmp_path / "a.srt"
    document = read(
        readers, path,
        "1\r\n00:00:01,000 --> 00:00:03,000\r\n<i>Tea</i> is grown\r\n\r\n"
        "2\r\n00:00:03,500 --> 00:00:05,000\r\non hills.\r\n\r\n"
        "3\r\n01:02:03,000 --> 01:02:05,000\r\n{\\an8}Rain falls.\r\n",
    )  # fmt: skip
    assert document.text == "[0:00:01] Tea is grown on hills.\n\n[1:02:03] Rain falls."
    assert place(document, path, "hills") == ("time", "0:00:01", "")
    assert place(document, path, "Rain") == ("time", "1:02:03", "")
    vtt = "WEBVTT\n\nNOTE hidden\n\n00:10.000 --> 00:12.000 align:start\n<v Ann>Hello.\n"
    assert read(readers, tmp_path / "a.vtt", vtt).text == "[0:00:10] Hello."
    with pytest.raises(Unreadable, match="no subtitles"):
        read(readers, path, "just text")


def test_texts_in_other_encodings_are_read_or_named(readers: Readers, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    assert read(readers, path, "tea \u2615".encode("utf-16")).text == "tea \u2615"
    assert read(readers, path, b"\xef\xbb\xbftea").text == "tea"
    for content, why in (
        (b"caf\xe9 au lait", "save it as UTF-8"), (b"a\0b", "not text"), (b" \n", "empty"),
        (b"x" * (LARGEST_TEXT + 1), "larger than 10 MB"), (b"\xff\xfea", "not UTF-16"),
    ):  # fmt: skip
        with pytest.raises(Unreadable, match=why):
            read(readers, path, content)


def test_a_huge_line_and_deep_pages_are_read(readers: Readers, tmp_path: Path) -> None:
    assert len(read(readers, tmp_path / "a.txt", "x" * LARGEST_TEXT).text) == LARGEST_TEXT
    deep = "<div>" * 200_000 + "core" + "</div>" * 200_000
    assert read(readers, tmp_path / "a.html", deep).text == "core"
    nested = "(" * 100_000
    assert read(readers, tmp_path / "a.py", nested).title is None
