"""Stems of words, so that a search for `runs` finds `running`.

DuckDB's own stemmer is in an extension that must be downloaded. SQLite comes with Python and has
the same stemmer, but no function that calls it. So new words are inserted into a full-text table in
memory, and their stems are read from its vocabulary.
"""

from __future__ import annotations

import sqlite3
import threading

from evervec.stores.sql.words import fold

_MOST_WORDS = 200_000
"""the cache is cleared when it holds more words"""
_LONGEST_WORD = 64
"""longer strings are not words: they are neither stemmed nor cached"""


class Stems:
    """A cache of the stems of words."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._lock = threading.Lock()
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db.execute(
            "create virtual table words using fts5 (word, content = '', tokenize = 'porter ascii')"
        )
        self._db.execute("create virtual table stems using fts5vocab (words, instance)")

    def of(self, words: list[str]) -> list[str]:
        """The stems of lower-case words without spaces, in order."""
        known = self._known
        try:
            return [known[word] for word in words]
        except KeyError:  # a new word, or one that is too long
            return self._learnt(words)

    def _learnt(self, words: list[str]) -> list[str]:
        with self._lock:
            short = [word for word in dict.fromkeys(words) if len(word) <= _LONGEST_WORD]
            new = [word for word in short if word not in self._known]
            if new:
                if len(self._known) > _MOST_WORDS:
                    self._known.clear()
                    new = short
                self._learn(new)
            known = self._known
            return [known.get(word, word) for word in words]

    def _learn(self, words: list[str]) -> None:
        self._known.update(zip(words, words, strict=True))  # words not in ASCII stay unchanged
        plain = [word for word in words if word.isascii()]
        self._db.executemany("insert into words (rowid, word) values (?, ?)", enumerate(plain))
        for place, stem in self._db.execute("select doc, term from stems"):
            self._known[plain[place]] = stem
        self._db.execute("insert into words (words) values ('delete-all')")

    def close(self) -> None:
        with self._lock:
            self._db.close()


STEMS = Stems()
"""for all stores of this process"""


def stems_of(text: str) -> list[str]:
    """The stems of a text's words, in order."""
    return STEMS.of(fold(text).lower().split())
