"""Words by their stem, so that `running` is found by `runs`.

DuckDB's own stemmer is in an extension that has to be downloaded. SQLite comes with Python
and has the same one, in a form that other programs cannot call; so words that are new here are
put into a table in memory, and its dictionary says what became of them.
"""

from __future__ import annotations

import sqlite3
import threading

_MOST_WORDS = 200_000
"""that are remembered"""
_LONGEST_WORD = 64
"""longer ones are no words: they stay as they are, and are not remembered"""


class Stems:
    """The stems of words, each looked up once."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._lock = threading.Lock()
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db.execute(
            "create virtual table words using fts5 (word, content = '', tokenize = 'porter ascii')"
        )
        self._db.execute("create virtual table stems using fts5vocab (words, instance)")

    def of(self, words: list[str]) -> list[str]:
        """The stems of lower-case words without blanks, in order."""
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
        self._known.update(zip(words, words, strict=True))  # what is not English stays as it is
        plain = [word for word in words if word.isascii()]
        self._db.executemany("insert into words (rowid, word) values (?, ?)", enumerate(plain))
        for place, stem in self._db.execute("select doc, term from stems"):
            self._known[plain[place]] = stem
        self._db.execute("insert into words (words) values ('delete-all')")

    def close(self) -> None:
        with self._lock:
            self._db.close()
