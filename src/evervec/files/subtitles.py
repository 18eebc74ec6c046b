"""Subtitles (SRT and WebVTT): what is said, in paragraphs that begin with their time."""

from __future__ import annotations

import re

from evervec.files.document import Document, Unreadable

_TIMING = re.compile(
    r"[ \t]{0,9}(?:(\d{1,4}):)?(\d{1,2}):(\d{2})[.,]\d{1,3}[ \t]*-->[ \t]*"
    r"(?:(\d{1,4}):)?(\d{1,2}):(\d{2})[.,]\d{1,3}"
)
_TAG = re.compile(r"<[^<>]{0,200}>|\{\\[^{}]{0,200}\}")
_PARAGRAPH = 400
"""characters after which a paragraph ends with the sentence"""
_PAUSE = 8
"""seconds of silence that end a paragraph"""
TIME = re.compile(r"^\[(\d{1,4}:\d{2}:\d{2})\] ", re.MULTILINE)
"""how a paragraph begins"""


def read_subtitles(text: str) -> Document:
    paragraphs: list[str] = []
    said: list[str] = []
    began = ended = size = 0

    def close() -> None:
        nonlocal size
        if said:
            paragraphs.append(f"[{_clock(began)}] {' '.join(said)}")
        said.clear()
        size = 0

    lines = iter(text.splitlines())
    for line in lines:
        timing = _TIMING.match(line)
        if timing is None:
            continue
        h1, m1, s1, h2, m2, s2 = (int(part or 0) for part in timing.groups())
        start = 3600 * h1 + 60 * m1 + s1
        enough = size > _PARAGRAPH and said[-1].endswith((".", "!", "?", "…"))
        # automatic subtitles have no punctuation
        if enough or start - ended > _PAUSE or size > 4 * _PARAGRAPH:
            close()
        ended = 3600 * h2 + 60 * m2 + s2
        for spoken in lines:
            words = " ".join(_TAG.sub("", spoken).split())
            if not spoken.strip():
                break
            if words and words not in said[-1:]:  # automatic subtitles repeat the line before
                began = start if not said else began
                said.append(words)
                size += len(words)
    close()
    if not paragraphs:
        raise Unreadable("it has no subtitles")
    return Document("\n\n".join(paragraphs))


def _clock(seconds: int) -> str:
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
