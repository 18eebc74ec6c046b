"""The words of texts as FTS5 finds them, as numbers.

SQLite has no function that calls a tokenizer. So a text is split here at the ASCII characters at
which FTS5 splits it too. A piece that was not met before is inserted into a full-text table in
memory, with the tokenizer of the store's table, and its words are read from the vocabulary.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from evervec.model.deadlines import check

_PIECE = re.compile("[0-9A-Za-z\x80-\U0010ffff]+")
_MOST_PIECES = 100_000
"""the cache is cleared when it holds more"""
_LONGEST_PIECE = 64
"""longer ones are not cached"""
_AT_ONCE = 512
"""texts"""

Words = NDArray[np.int64]


WORD_BITS = 46
"""Of a word's number. With a place and a column it fits into 63 bits, which sort in a third of the
time of separate numbers. Among a million words, two share a number with a chance below one in a
hundred."""


def number_of(word: str) -> int:
    """A word of full text as a number."""
    digest = blake2b(word.encode(), digest_size=6).digest()
    return int.from_bytes(digest, "little") >> 48 - WORD_BITS


class Tokens:
    """Splits texts into the numbers of their words."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, ...]] = {}
        self._lock = threading.Lock()
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db.execute(
            "create virtual table pieces using fts5 "
            "(piece, content = '', tokenize = 'porter unicode61 remove_diacritics 2')"
        )
        self._db.execute("create virtual table words using fts5vocab (pieces, instance)")

    def of(self, term: str) -> list[int]:
        """The words of a query's term, in no order."""
        return self._split([term])[0]

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def split(self, texts: Sequence[str]) -> tuple[Words, Words]:
        """The words of all texts, and how many each text has. Those of one text are in no order."""
        words: list[list[int]] = []
        for start in range(0, len(texts), _AT_ONCE):
            check()
            words += self._split(texts[start : start + _AT_ONCE])
        counts = np.fromiter(map(len, words), np.int64, len(words))
        return np.fromiter(chain.from_iterable(words), np.int64, int(counts.sum())), counts

    def _split(self, texts: Sequence[str]) -> list[list[int]]:
        pieces = [_PIECE.findall(text) for text in texts]
        with self._lock:
            new = set(chain.from_iterable(pieces)).difference(self._known)
            if new and len(self._known) > _MOST_PIECES:
                self._known.clear()
                new = set(chain.from_iterable(pieces))
            self._learn(sorted(new))
            known = self._known
            words = [list(chain.from_iterable(map(known.__getitem__, some))) for some in pieces]
            for piece in new:
                if len(piece) > _LONGEST_PIECE or _is_number(piece):
                    del known[piece]
        return words

    def _learn(self, pieces: Sequence[str]) -> None:
        # nearly every text may have a number of its own: these would fill the cache
        numbers = filter(_is_number, pieces)
        self._known.update((piece, (number_of(piece),)) for piece in numbers)
        pieces = [piece for piece in pieces if not _is_number(piece)]
        if not pieces:
            return
        words: dict[int, list[int]] = {}
        self._db.execute("begin")  # a transaction for each piece would take three times as long
        try:
            rows = enumerate(pieces)
            self._db.executemany("insert into pieces (rowid, piece) values (?, ?)", rows)
            for place, word in self._db.execute("select doc, term from words"):
                words.setdefault(place, []).append(number_of(word))
        finally:
            self._db.execute("rollback")
        self._known.update(
            (piece, tuple(words.get(place, ()))) for place, piece in enumerate(pieces)
        )


def _is_number(piece: str) -> bool:
    """Whether the piece is its only word, unchanged: digits have no case, accents or endings."""
    return piece.isdecimal() and piece.isascii()
