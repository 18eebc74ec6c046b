"""The work grows with the text, whatever the text is: nothing is measured many times over, and
no text of half a million characters is out of reach."""

from __future__ import annotations

import random

import pytest

from evervec.chunking import BYTES, ContentChunker, Measure

SIZE = 500_000

HARD = {
    "only newlines": "\n" * SIZE,
    "only spaces": " " * SIZE + "x",
    "no newline": "word " * (SIZE // 5),
    "one letter": "a" * SIZE,
    "hashes": "#" * SIZE,
    "backticks": "`" * SIZE,
    "tildes": "~" * SIZE,
    "quotes": '"' * SIZE,
    "dots": "." * SIZE,
    "dots and spaces": ". " * (SIZE // 2),
    "braces": "## a" + "{" * SIZE,
    "fences": "```\n" * (SIZE // 40),
    "open fences": "```x\n" * (SIZE // 50),
    "fences that never close": "\n".join("`" * n for n in range(1000, 2, -1)),
    "headings": "## a\n\n" * (SIZE // 60),
    "rules": "a\n---\n" * (SIZE // 60),
    "items": "- a\n" * (SIZE // 40),
    "wide gaps": ("x" + " " * 5000) * (SIZE // 5001),
    "marks without a letter": "\u0301" * (SIZE // 2),
    "flags": "\U0001f1e9\U0001f1ea" * (SIZE // 8),
    "letters": "".join(random.Random(1).choices("abcdefgh", k=SIZE)),
}


@pytest.mark.parametrize("name", HARD)
def test_a_hard_text_is_measured_a_few_times_over_at_most(name: str) -> None:
    text, measured = HARD[name], 0

    def count(part: str) -> int:
        nonlocal measured
        measured += len(part)
        return BYTES.count(part)

    at = 0
    for start, end, _ in ContentChunker(1600, measure=Measure("counted", count)).split(text):
        assert at <= start < end <= start + 1600
        at = end
    assert measured <= 20 * len(text)


def test_a_page_is_measured_once() -> None:
    text = "\n\n".join(f"## Part {n}\n\n" + "Some words of it. " * 30 for n in range(500))
    calls: list[int] = []

    def count(part: str) -> int:
        calls.append(len(part))
        return len(part)

    assert len(list(ContentChunker(measure=Measure("counted", count)).split(text))) > 200
    assert sum(calls) <= len(text)
    assert len(calls) <= 1002  # each block, and once each way to part two of them
