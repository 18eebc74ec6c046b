"""Writes the words of large tenants in parts (`postings`), in the maintenance of the store.

A part has records in the order in which they were added or changed: the first that no part has,
and those that were changed since their part was written. An entry replaces those of earlier parts.
Changes write the records' numbers in the same transaction (`evervec_rewritten`), so a part that is
made while others write is right: whatever changed after its snapshot is still listed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from evervec.stores.sqlite import postings
from evervec.stores.sqlite.changes import scope
from evervec.stores.sqlite.connections import Connections
from evervec.stores.sqlite.engine import SQL, listed
from evervec.stores.sqlite.postings import Directory, are_latest, batches, index, is_full, pack
from evervec.stores.sqlite.tokens import Tokens

_MOST_DEAD = 2
"""a part of whose entries more than one in so many were replaced is dropped"""
_SHARE_NEW = 8
"""too few records for a part are read again when one more in so many was changed"""
_MOST_NOTES = 10_000
"""of changed records that no longer exist, in tenants without parts"""


class WordParts:
    """The parts of all tenants of a store."""

    def __init__(self, db: Connections, tokens: Tokens) -> None:
        self._db = db
        self._tokens = tokens
        self._examined: dict[str, int] = {}
        """of each tenant, the generation of its parts at which none had to be dropped"""
        self._count_notes_from = 0
        """the store's counter before which notes of purged records are not counted again"""
        self._too_few: dict[str, tuple[int, int]] = {}
        """of each tenant with too few records for a part, the generation of its parts, and the
        store's counter before which they are not read again"""

    def maintain(self) -> None:
        """Write parts for records that are in none, and drop parts that are mostly replaced."""
        with self._db.reading() as conn:
            large = conn.execute(SQL.large_tenants, (postings.ROWS,)).fetchall()
        for (tenant,) in large:
            while self._add_part(tenant):
                pass
            while self._drop_replaced(tenant):
                pass
        if self._count_idle_notes() > _MOST_NOTES:
            with self._db.writing(durable=False) as conn:
                conn.execute(SQL.drop_idle_notes)
                conn.execute(SQL.words_changed)

    def _count_idle_notes(self) -> int:
        """Of purged records, in tenants without parts. All notes are read, which may be many: only
        after so many numbers were taken that there may be too many."""
        with self._db.reading() as conn:
            mark, _ = conn.execute(SQL.words_state).fetchone()
            if mark < self._count_notes_from:
                return 0
            self._count_notes_from = mark + _MOST_NOTES
            (count,) = conn.execute(SQL.count_idle_notes).fetchone()
        return int(count)

    def _add_part(self, tenant: str) -> bool:
        """Write the next part if there are records enough for it."""
        with self._db.snapshot() as conn:
            (mark, generation) = conn.execute(SQL.words_state).fetchone()
            known, wait = self._too_few.get(tenant, (generation, mark))
            if known == generation and mark < wait:
                return False
            number, last = conn.execute(SQL.last_words, (tenant,)).fetchone()
            changed = conn.execute(SQL.rewritten_texts, (tenant, last))
            new = conn.execute(SQL.tail, (f"scope : {scope(tenant)}", last))
            texts = next(batches(chain(changed, new), postings.ROWS), [])
        if not is_full(texts):
            self._too_few[tenant] = (generation, mark + len(texts) // _SHARE_NEW)
            return False
        directory, found = index(texts, self._tokens)
        last = max(last, int(directory.records.max()))
        packed = list(pack(found))
        with self._db.writing(durable=False) as conn:
            if conn.execute(SQL.words_state).fetchone()[1] != generation:
                return True  # another process wrote parts
            part = number + 1
            row = conn.execute(SQL.last_words_row).fetchone()[0]
            conn.executemany(SQL.add_words, [(tenant, word, part, data) for word, data in packed])
            end = conn.execute(SQL.last_words_row).fetchone()[0]
            conn.execute(SQL.add_word_part, (tenant, part, last, row, end, directory.pack()))
            records = listed(directory.records.tolist())
            conn.execute(SQL.drop_notes, (tenant, records, mark))
            conn.execute(SQL.words_changed)
        return True

    def _drop_replaced(self, tenant: str) -> bool:
        """Drop the part with the most replaced entries if they are too many. Those of its records
        that have no later entry are listed as changed, so that another part will have them."""
        with self._db.snapshot() as conn:  # nobody waits while the directories are compared
            _, generation = conn.execute(SQL.words_state).fetchone()
            if self._examined.get(tenant) == generation:
                return False
            rows = conn.execute(SQL.word_parts, (tenant,)).fetchall()
        found = [(part, Directory.unpack(data)) for part, _, data in rows]
        sound = [(part, directory) for part, directory in found if directory is not None]
        is_damaged = len(sound) < len(found)
        worst = None if is_damaged else _mostly_replaced([directory for _, directory in sound])
        if worst is None and not is_damaged:
            self._examined[tenant] = generation
            return False
        with self._db.writing(durable=False) as conn:
            if conn.execute(SQL.words_state).fetchone()[1] != generation:
                return True  # another process wrote parts
            for place, (part, _) in enumerate(found):
                if is_damaged or (worst is not None and place == worst.place):
                    self._drop(conn, tenant, part)
            if worst is not None:
                conn.execute(SQL.note_rewritten, (tenant, listed(worst.left)))
        return not is_damaged

    def _drop(self, conn: sqlite3.Connection, tenant: str, part: int) -> None:
        conn.execute(SQL.drop_words, (tenant, part))
        conn.execute(SQL.drop_word_part, (tenant, part))
        conn.execute(SQL.words_changed)


class _Worst(NamedTuple):
    """A part that is worth to be dropped."""

    place: int
    left: list[int]
    """those of its records that need an entry in another part"""


def _mostly_replaced(directories: Sequence[Directory]) -> _Worst | None:
    """The part with the most entries that later ones replace, if these are too many."""
    is_replaced = ~are_latest(directories)
    worst, most, start = None, 0, 0
    for place, directory in enumerate(directories):
        replaced = is_replaced[start : start + len(directory.records)]
        start += len(replaced)
        if (count := int(replaced.sum())) * _MOST_DEAD > len(replaced) and count > most:
            worst, most = (place, replaced), count
    if worst is None:
        return None
    place, replaced = worst
    directory = directories[place]
    # a record that is not live needs an entry only where an earlier part has it
    earlier = [directory.records[:0], *(d.records for d in directories[:place])]
    needed = (directory.sizes > 0) | np.isin(directory.records, np.concatenate(earlier))
    return _Worst(place, directory.records[needed & ~replaced].tolist())
