"""Word documents (.docx): paragraphs, headings as in Markdown, tables and page breaks.

A .docx is a ZIP archive of XML. Only two parts of it are read, each up to a bound, and an XML document type
is refused, because its entities can grow without limit. A form feed stands where Word last began a page.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from evervec.files.document import Document, Unreadable, short_title

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main "
_TITLE = "http://purl.org/dc/elements/1.1/ title"
_LARGEST_PART = 64 << 20
"""bytes of XML that are read at most; a ZIP archive can hold a thousand times its own size"""
_DEEPEST = 500
_STEP = 1 << 16
_HEADING = re.compile(r"heading ?([1-6])", re.IGNORECASE)


def read_word(path: Path) -> Document:
    body, core = _Body(), _Core()
    try:
        with zipfile.ZipFile(path) as archive:
            _parse(archive, "word/document.xml", body)
            if "docProps/core.xml" in archive.namelist():
                _parse(archive, "docProps/core.xml", core)
    except KeyError as error:
        raise Unreadable("not a Word document") from error
    except (zipfile.BadZipFile, zlib.error, expat.ExpatError, EOFError, ValueError) as error:
        raise Unreadable(f"not a readable Word document ({error})") from error
    except (RuntimeError, NotImplementedError) as error:  # encrypted, or packed in a rare way
        raise Unreadable("it is protected by a password, or packed in an unknown way") from error
    headings = (text.lstrip("# ") for text in body.paragraphs if text.startswith("# "))
    title = short_title(core.title) or short_title(next(headings, None))
    return Document("\n\n".join(body.paragraphs), title)


class _Part:
    """Handles the elements of one part of the archive."""

    def __init__(self) -> None:
        self._depth = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise Unreadable("its XML is nested too deeply")

    def end(self, name: str) -> None:
        self._depth -= 1

    def data(self, text: str) -> None: ...


def _parse(archive: zipfile.ZipFile, name: str, part: _Part) -> None:
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = part.start
    parser.EndElementHandler = part.end
    parser.CharacterDataHandler = part.data
    parser.StartDoctypeDeclHandler = _refuse
    parser.buffer_text = True
    size = 0
    with archive.open(name) as stream:
        while data := stream.read(_STEP):
            size += len(data)
            if size > _LARGEST_PART:
                raise Unreadable(f"its text is larger than {_LARGEST_PART >> 20} MB when unpacked")
            parser.Parse(data, False)
    parser.Parse(b"", True)


def _refuse(*_: object) -> NoReturn:
    raise Unreadable("its XML declares a document type, which Word never does")


class _Body(_Part):
    """The paragraphs, and the rows of tables."""

    def __init__(self) -> None:
        super().__init__()
        self.paragraphs: list[str] = []
        self._parts: list[str] = []
        self._cells: list[str] = []
        self._rows = 0
        """open rows: tables may stand in tables"""
        self._mark = ""
        self._in_text = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        match name.removeprefix(_W):
            case "t":
                self._in_text = True
            case "tab":
                self._parts.append("\t")
            case "br" if attributes.get(f"{_W}type") == "page":
                self._parts.append("\f")
            case "lastRenderedPageBreak":
                self._parts.append("\f")
            case "br" | "cr":
                self._parts.append("\n")
            case "pStyle":
                self._mark = _mark(attributes.get(f"{_W}val") or "")
            case "tr":
                self._rows += 1

    def end(self, name: str) -> None:
        super().end(name)
        match name.removeprefix(_W):
            case "t":
                self._in_text = False
            case "p":
                self._end_paragraph()
            case "tr":
                self._rows -= 1
                if not self._rows and self._cells:
                    self.paragraphs.append(" | ".join(self._cells))
                    self._cells = []

    def data(self, text: str) -> None:
        if self._in_text:
            self._parts.append(text)

    def _end_paragraph(self) -> None:
        text = "".join(self._parts).strip(" \t\n")
        breaks = "\f" * text.count("\f")
        if breaks:  # they stand before the paragraph, so that no word is cut by one
            text = text.replace("\f", "")
        if self._rows:
            self._cells += [text] if text else []
        elif text:
            self.paragraphs.append(breaks + self._mark + text)
        elif breaks:
            self.paragraphs.append(breaks)
        self._parts, self._mark = [], ""


class _Core(_Part):
    """The title in the document's properties."""

    def __init__(self) -> None:
        super().__init__()
        self.title = ""
        self._in_title = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        super().start(name, attributes)
        self._in_title = name == _TITLE

    def end(self, name: str) -> None:
        super().end(name)
        self._in_title = False

    def data(self, text: str) -> None:
        if self._in_title and len(self.title) < 1000:
            self.title += text


def _mark(style: str) -> str:
    if style.lower() == "title":
        return "# "
    found = _HEADING.fullmatch(style)
    return "#" * int(found.group(1)) + " " if found else ""
