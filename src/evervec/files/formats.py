"""Reads a file by its format, which its name tells: title, text, and what both are worth."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable
from pathlib import Path
from stat import S_ISREG

from evervec.files.document import Document, Unreadable
from evervec.files.html import read_html
from evervec.files.markup import (
    read_markdown,
    read_plain,
    read_python,
    read_rst,
    read_source,
)
from evervec.files.notebook import read_notebook
from evervec.files.pdf import PdfReader
from evervec.files.subtitles import read_subtitles
from evervec.files.word import read_word

LARGEST_TEXT = 10 << 20
LARGEST_DOCUMENT = 200 << 20
"""bytes of a PDF or Word file, which holds pictures too"""

_TEXTS: dict[str, Callable[[str], Document]] = {
    **dict.fromkeys((".md", ".markdown", ".mdx", ".qmd", ".rmd"), read_markdown),
    ".rst": read_rst,
    **dict.fromkeys((".html", ".htm", ".xhtml"), read_html),
    ".ipynb": read_notebook,
    **dict.fromkeys((".srt", ".vtt"), read_subtitles),
    **dict.fromkeys((".py", ".pyi", ".pyw"), read_python),
    **dict.fromkeys(
        (
            ".c", ".cc", ".cpp", ".cs", ".css", ".csv", ".dart", ".ex", ".exs", ".go", ".h", ".hpp",
            ".hs", ".ini", ".java", ".jl", ".js", ".json", ".jsonl", ".jsx", ".kt", ".lua", ".m",
            ".ml", ".mjs", ".php", ".pl", ".ps1", ".r", ".rb", ".rs", ".scala", ".scss", ".sh",
            ".sql", ".swift", ".toml", ".ts", ".tsx", ".vue", ".xml", ".yaml", ".yml", ".zig",
        ),
        read_source,
    ),
}  # fmt: skip

NOT_TEXT = frozenset(
    (
        "7z", "a", "aac", "ai", "apk", "avi", "avif", "blend", "bmp", "br", "bz2", "class",
        "db", "db-journal", "db-shm", "db-wal", "deb", "dll", "dmg", "doc", "duckdb", "dylib", "eot", "eps", "exe", "fbx", "flac", "gif",
        "glb", "gz", "heic", "icns", "ico", "iso", "jar", "jpeg", "jpg", "key", "lz4", "m4a",
        "m4v", "mkv", "mov", "mp3", "mp4", "mpeg", "mpg", "msi", "numbers", "npy", "npz", "o",
        "odp", "ods", "odt", "ogg", "onnx", "opus", "otf", "pages", "parquet", "pickle", "pkl",
        "png", "ppt", "pptx", "psd", "pt", "pth", "pyc", "pyd", "pyo", "rar", "rpm",
        "safetensors", "so", "sqlite", "sqlite-shm", "sqlite-wal", "sqlite3", "sqlite3-shm",
        "sqlite3-wal", "stl", "sketch", "swf", "tar", "tgz", "tif",
        "tiff", "ttf", "wasm", "wav", "webm", "webp", "whl", "wma", "wmv", "woff", "woff2",
        "xls", "xlsx", "xz", "zip", "zst",
    )
)  # fmt: skip
"""endings of names of files that are known to hold no text that can be read here"""

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
_CHARSET = re.compile(rb"<meta[^>]{1,200}charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)


def type_of(path: Path) -> str:
    """A file's type: the ending of its name, without the dot."""
    return path.suffix.lower().lstrip(".")


class Readers:
    """Reads files of every format, as a context: a process that reads PDF ends with it."""

    def __init__(self) -> None:
        self._pdf = PdfReader()

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pdf.close()

    def read(self, path: Path) -> tuple[Document, float]:
        """A file's text and the time of its last change. Raises `Unreadable`, or `OSError`."""
        suffix = path.suffix.lower()
        status = path.stat()
        if not S_ISREG(status.st_mode):
            raise Unreadable("not a regular file")
        largest = LARGEST_DOCUMENT if suffix in (".pdf", ".docx") else LARGEST_TEXT
        if status.st_size > largest:
            raise Unreadable(f"larger than {largest >> 20} MB")
        if suffix == ".pdf":
            document = self._pdf.read(path)
        elif suffix == ".docx":
            document = read_word(path)
        else:
            text = _decoded(_content(path), is_page=suffix in (".html", ".htm", ".xhtml"))
            document = _TEXTS.get(suffix, read_plain)(text)
        if not document.text.strip():
            raise Unreadable("empty")
        return document, status.st_mtime


def _content(path: Path) -> bytes:
    """The content of a file. It is opened so that neither a pipe that took the file's place nor a
    file that grows can hold the reader up."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as stream:
        content = stream.read(LARGEST_TEXT + 1)
    if len(content) > LARGEST_TEXT:
        raise Unreadable(f"larger than {LARGEST_TEXT >> 20} MB")
    return content


def _decoded(content: bytes, *, is_page: bool) -> str:
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if content.startswith(mark)), "utf-8")
    if encoding == "utf-8" and b"\0" in content:
        raise Unreadable("not text")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        declared = _CHARSET.search(content[:2048]) if is_page else None
        if declared is not None:
            return _as_declared(content, declared.group(1).decode())
    raise Unreadable(f"not {encoding.removesuffix('-sig').upper()} text: save it as UTF-8")


def _as_declared(content: bytes, charset: str) -> str:
    try:
        known = codecs.lookup(charset)
        return (
            content.decode(known.name, "replace") if known._is_text_encoding else content.decode()
        )
    except (LookupError, UnicodeError):
        raise Unreadable(f"its encoding {charset} is unknown: save it as UTF-8") from None
