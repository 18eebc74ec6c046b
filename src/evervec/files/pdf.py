"""PDF: the text of each page. A form feed stands between two pages.

A PDF can be made so that reading it takes hours or all memory. So it is read in a process of its own, with
limits on both; the same process reads one file after the other.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from evervec.files.document import Document, NeedsPackage, Unreadable, first_line, short_title

_SECONDS = 120
"""for one file"""
_MEMORY = 4 << 30
_MOST_CHARACTERS = 16_000_000
_MOST_PAGES = 20_000


class PdfReader:
    """Reads PDF files with pypdf, in a process that starts with the first one."""

    def __init__(self, seconds: float = _SECONDS) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, path: Path) -> Document:
        if importlib.util.find_spec("pypdf") is None:
            raise NeedsPackage("pdf")
        answer = self._ask(os.fsencode(path.absolute()))
        if "error" in answer:
            raise Unreadable(answer["error"])
        pages: list[str] = answer["pages"]
        if not any(map(str.strip, pages)):
            raise Unreadable("it has no text: it may be scanned pages")
        title = short_title(answer["title"]) or first_line(pages[0])
        return Document("\n\f".join(pages), title)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _ask(self, path: bytes) -> dict[str, Any]:
        process = self._process or self._start()
        late = threading.Timer(self._seconds, process.kill)
        late.start()
        try:
            line = _exchange(process, path.hex().encode() + b"\n")
        finally:
            late.cancel()
        if not line.endswith(b"\n"):
            self.close()
            raise Unreadable(
                f"it takes too much memory, or longer than {self._seconds:g} s, to read"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "evervec.files.pdf"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        return self._process


def _exchange(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    """Send a line to a process, and return the line that it answers; empty if it has ended."""
    if process.stdin is None or process.stdout is None:
        return b""
    try:
        process.stdin.write(line)
        process.stdin.flush()
        return process.stdout.readline()
    except OSError:
        return b""


def _main() -> None:
    """Answer each path on standard input with a line of JSON."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever the library prints is no answer
    for line in sys.stdin.buffer:
        _limit(_MEMORY, _SECONDS)
        try:
            answer = _extract(os.fsdecode(bytes.fromhex(line.decode())))
        except Exception as error:  # noqa: BLE001 - any error of the library is one of the file
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            answer = {"error": f"not a readable PDF ({reason})"}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _limit(memory: int, seconds: int) -> None:
    """Let the next file take so much memory and processor time, even if the parent is killed."""
    with suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        used = resource.getrusage(resource.RUSAGE_SELF)
        most = resource.getrlimit(resource.RLIMIT_CPU)[1]
        spent = int(used.ru_utime + used.ru_stime) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds, most))


def _extract(path: str) -> dict[str, Any]:
    import pypdf

    reader = pypdf.PdfReader(path)
    if reader.is_encrypted and not reader.decrypt(""):
        return {"error": "it is protected by a password"}
    pages: list[str] = []
    size = 0
    for page in reader.pages:
        text = page.extract_text().replace("\f", "\n").replace("\0", "")
        size += len(text)
        if size > _MOST_CHARACTERS or len(pages) == _MOST_PAGES:
            return {"error": "it has more text than a record may have"}
        pages.append(text.encode("utf-8", "ignore").decode())
    title = reader.metadata.title if reader.metadata else None
    return {"pages": pages, "title": str(title or "")}


if __name__ == "__main__":
    _main()
