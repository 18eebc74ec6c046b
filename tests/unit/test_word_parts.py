"""Words of large tenants in the store's file: whatever happened since they were written, a full-text
search finds the records that a plain computation finds."""

import itertools
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evervec
from evervec import Evervec
from evervec.model.filters import parse_filter
from evervec.stores.sqlite import postings, records, word_blocks, word_parts
from evervec.stores.sqlite.postings import Directory
from evervec.stores.sqlite.ranking import K1, MOST, B, rarity_of
from evervec.stores.sqlite.tokens import Tokens, number_of
from support.seeds import some_of
from support.world import DAY, Clock

WORDS = [f"{a}{b}" for a in "bvfgk" for b in "aou"] + ["zu"]
Truth = dict[str, tuple[str, str]]
"""title and text of each record, in order of their numbers"""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tenant is a large one, with parts of eight records."""
    monkeypatch.setattr(records, "MANY", 0)
    monkeypatch.setattr(postings, "ROWS", 8)
    monkeypatch.setattr(postings, "_FEW", 4)
    monkeypatch.setattr(word_blocks, "_FEW_UNSORTED", 16)
    monkeypatch.setattr("evervec.stores.sqlite.word_ranking._WORTH_CLOSING", 4)


@pytest.fixture
def reopen(tmp_path: Path) -> Iterator[Callable[[], Evervec]]:
    """Opens the store as another process does."""
    opened: list[Evervec] = []
    clock = Clock()

    def again() -> Evervec:
        opened.append(evervec.open(tmp_path / "notes.db", embedder="noop", clock=clock))
        return opened[-1]

    again.clock = clock  # type: ignore[attr-defined]
    yield again
    for ev in opened:
        ev.close()


def drawn(draw: random.Random) -> tuple[str, str]:
    weights = [1 / (n + 1) for n in range(len(WORDS))]
    title = draw.choices(WORDS, weights, k=draw.randint(0, 2))
    return " ".join(title), " ".join(draw.choices(WORDS, weights, k=draw.randint(1, 12)))


def plain(texts: Truth, query: str) -> dict[str, float]:
    sizes = {id: 1 + len(f"{title} {text}".split()) for id, (title, text) in texts.items()}
    latest = list(sizes.values())[-100:]
    usual = sum(latest) / max(len(latest), 1)
    scores = dict.fromkeys(texts, 0.0)
    for word in dict.fromkeys(query.split()):
        times = {
            id: 2 * Counter(title.split())[word] + Counter(text.split())[word]
            for id, (title, text) in texts.items()
        }
        rarity = rarity_of(len(texts), sum(count > 0 for count in times.values()))
        for id, count in times.items():
            least = K1 * (1 - B + B * sizes[id] / usual)
            scores[id] += rarity * MOST * count / (count + least)
    return {id: score for id, score in scores.items() if score > 0}


def compare(
    ev: Evervec, truth: Truth, query: str, limit: int, filter: dict[str, Any] | None = None
) -> None:
    found = ev.store.records.search_text(ev.tenant, None, query, limit, parse_filter(filter))
    ids = {number: r.id for number, r in ev.store.records.found([n for n, _ in found]).items()}
    wanted = plain(truth, query)
    if filter:
        wanted = {id: score for id, score in wanted.items() if int(id) % 3 == 0}
    best = sorted(wanted.values(), reverse=True)[:limit]
    assert [score for _, score in found] == pytest.approx(best, rel=1e-5)
    for number, score in found:
        assert score == pytest.approx(wanted[ids[number]], rel=1e-5)


def add(ev: Evervec, truth: Truth, id: str, content: tuple[str, str]) -> None:
    title, text = content
    ev.add("note", text, id=id, title=title or None, metadata={"third": int(id) % 3 == 0})
    truth[id] = content


def counts(ev: Evervec) -> tuple[int, int]:
    """The parts in the file, and the changed records that are in none."""
    with ev.store.db.reading() as conn:  # type: ignore[attr-defined]
        (parts,) = conn.execute("select count(*) from evervec_word_parts").fetchone()
        (changed,) = conn.execute("select count(*) from evervec_rewritten").fetchone()
    return parts, changed


class History:
    """Random changes by two processes, with what two tenants then have."""

    def __init__(self, reopen: Callable[[], Evervec], seed: int) -> None:
        self.draw = random.Random(seed)
        self.reopen = reopen
        self.processes = [reopen(), reopen()]
        self.truths: dict[str, Truth] = {"default": {}, "other": {}}
        self.numbers = itertools.count()
        self.parts = 0

    def act(self) -> None:
        """Do one random thing, for one tenant, in one process."""
        acts = (
            self.add,
            self.add,
            self.change,
            self.delete,
            self.maintain,
            self.purge,
            self.search,
        )
        ev, name = self.draw.choice(self.processes), self.draw.choice(("default", "other"))
        self.draw.choice(acts)(ev.of(name), self.truths[name])
        if not self.draw.randrange(10):
            self.processes[self.draw.randint(0, 1)] = self.reopen()

    def add(self, ev: Evervec, truth: Truth) -> None:
        for id in itertools.islice(self.numbers, self.draw.randint(1, 12)):
            add(ev, truth, str(id), drawn(self.draw))

    def change(self, ev: Evervec, truth: Truth) -> None:
        for id in self.draw.sample(sorted(truth), min(len(truth), self.draw.randint(1, 9))):
            add(ev, truth, id, drawn(self.draw))

    def delete(self, ev: Evervec, truth: Truth) -> None:
        for id in self.draw.sample(sorted(truth), min(len(truth), self.draw.randint(1, 9))):
            ev.delete("note", id)
            del truth[id]

    def maintain(self, ev: Evervec, _: Truth) -> None:
        ev.store.maintain()
        self.parts = max(self.parts, counts(ev)[0])

    def purge(self, ev: Evervec, _: Truth) -> None:
        self.reopen.clock.move(DAY)  # type: ignore[attr-defined]
        ev.store.jobs.purge_history(self.reopen.clock.now)  # type: ignore[attr-defined]

    def search(self, ev: Evervec, truth: Truth) -> None:
        for query in ("zu", "ba zu", " ".join(self.draw.sample(WORDS, 4)), " ".join(WORDS)):
            for limit in (3, 1000):
                compare(ev, truth, query, limit)
                compare(ev, truth, query, limit, {"third": True})


@pytest.mark.parametrize("seed", some_of(range(6), first=3))
def test_a_search_is_right_whatever_happened(reopen: Callable[[], Evervec], seed: int) -> None:
    history = History(reopen, seed)
    for _ in range(80):
        history.act()
    for ev in history.processes:
        for name, truth in history.truths.items():
            history.search(ev.of(name), truth)
    assert history.parts > 2


def full(ev: Evervec) -> Truth:
    """Four parts, and three records that are in none."""
    draw, truth = random.Random(1), Truth()
    for n in range(35):
        add(ev, truth, str(n), drawn(draw))
    ev.store.maintain()
    assert counts(ev) == (4, 0)
    return truth


def test_only_what_is_in_no_part_is_read_when_a_process_begins(
    reopen: Callable[[], Evervec], monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = full(reopen())
    read: list[int] = []
    index = postings.index

    def counted(texts: Any, tokens: Tokens) -> Any:
        read.append(len(texts))
        return index(texts, tokens)

    monkeypatch.setattr(postings, "index", counted)
    ev = reopen()
    compare(ev, truth, "ba zu", 5)
    assert read == [3]
    add(ev, truth, "0", ("", "zu zu"))
    compare(ev, truth, "ba zu", 5)
    assert read == [3, 1]


def test_a_record_that_appears_after_its_part_was_written_is_found(
    reopen: Callable[[], Evervec],
) -> None:
    ev = evervec.open(reopen().store.url, embedder="hashing")
    ev.add("note", "ba zu", id="77", boxed=True)
    truth = full(ev)
    compare(ev, truth, "ba zu", 50)
    ev.process_all()
    compare(ev, {"77": ("", "ba zu"), **truth}, "ba zu", 50)
    ev.close()


def test_parts_that_are_mostly_replaced_are_dropped(reopen: Callable[[], Evervec]) -> None:
    ev = reopen()
    truth = full(ev)
    for round in range(10):
        for id in range(32):
            add(ev, truth, str(id), ("", f"ba {WORDS[round]}"))
        ev.store.maintain()
        parts, changed = counts(ev)
        assert parts <= 8
        assert changed <= 40
        compare(ev, truth, f"ba {WORDS[round]}", 50)


def test_what_dropped_parts_leave_is_written_again_once(
    reopen: Callable[[], Evervec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if nothing is saved meanwhile, which would advance the store's counter."""
    ev = reopen()
    truth = full(ev)
    for id in range(32):
        if id % 8 < 5:
            add(ev, truth, str(id), ("", "ba zu"))
    made = itertools.count(1)
    index = postings.index

    def counted(texts: list[postings.Text], tokens: Tokens) -> Any:
        assert next(made) < 20, "the same records are written again and again"
        return index(texts, tokens)

    monkeypatch.setattr(word_parts, "index", counted)
    for _ in range(3):
        ev.store.maintain()
    parts, changed = counts(ev)
    assert 3 <= parts <= 5
    assert changed < 8
    compare(ev, truth, "ba zu", 50)


def test_damaged_parts_are_not_used_and_are_made_again(
    reopen: Callable[[], Evervec], caplog: pytest.LogCaptureFixture
) -> None:
    ev = reopen()
    truth = full(ev)
    with ev.store.db.writing(durable=True) as conn:  # type: ignore[attr-defined]
        conn.execute("update evervec_word_parts set data = substr(data, 1, 20) where part = 2")
    with caplog.at_level(logging.WARNING):
        compare(reopen(), truth, "ba zu", 50)
    assert "damaged" in caplog.text
    ev.store.maintain()
    ev.store.maintain()
    assert counts(ev)[0] == 4
    compare(reopen(), truth, "ba zu", 50)


def test_notes_of_purged_records_do_not_stay(
    reopen: Callable[[], Evervec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evervec.stores.sqlite.word_parts._MOST_NOTES", 2)
    ev = reopen()
    truth = Truth()
    for n in range(6):
        add(ev, truth, str(n), ("", "ba zu"))
    compare(ev, truth, "ba", 9)
    for id in ("1", "2", "3"):
        ev.delete("note", id)
        del truth[id]
    assert counts(ev)[1] == 3
    with ev.store.db.writing(durable=True) as conn:  # type: ignore[attr-defined]
        conn.execute("delete from evervec_records where state = 'deleted'")
    ev.store.maintain()
    assert counts(ev) == (0, 0)
    compare(ev, truth, "ba", 9)


@pytest.mark.parametrize(
    "text",
    ["plain Words, running-wild_and 42x", "Ünïcode naïve café — “quoted” İstanbul ß ﬁ",
     "日本語 テスト", "x" * 300 + " y", "7 007 2019 " + "1" * 300,
     "12s 100ing 5ed 1e9 v2", "áb é̂", "١٢٣ m² ½", "", "--- …"],
)  # fmt: skip
def test_texts_are_split_as_the_index_splits_them(text: str) -> None:
    with evervec.open("memory:", embedder="noop") as ev:
        ev.add("note", text or "-", id="1")
        with ev.store.db.writing(durable=False) as conn:  # type: ignore[attr-defined]
            conn.execute(
                "create virtual table temp.v using fts5vocab (main, evervec_text, instance)"
            )
            rows = conn.execute("select term from temp.v where col = 'text'").fetchall()
            conn.execute("drop table temp.v")
    words, counts = Tokens().split([text])
    assert counts.tolist() == [len(rows)]
    assert sorted(words.tolist()) == sorted(number_of(term) for (term,) in rows)


def test_numbers_do_not_fill_the_cache_of_words() -> None:
    tokens = Tokens()
    first, _ = tokens.split(["tea 1", "tea 2"])
    again, _ = tokens.split(["2 tea"])
    assert set(again.tolist()) < set(first.tolist())
    assert tokens._known.keys() == {"tea"}


def test_changes_and_other_parts_that_are_written_meanwhile_are_kept(
    reopen: Callable[[], Evervec], monkeypatch: pytest.MonkeyPatch
) -> None:
    ev, other = reopen(), reopen()
    truth = full(ev)
    for n in range(35, 50):
        add(ev, truth, str(n), ("", "ba"))
    index = postings.index

    def overtaken(texts: Any, tokens: Tokens) -> Any:
        """Another process changes records of the part, then writes the same part."""
        monkeypatch.setattr("evervec.stores.sqlite.word_parts.index", index)
        add(other, truth, "36", ("", "zu zu"))
        other.delete("note", "37")
        del truth["37"]
        if len(made) == 1:
            other.store.maintain()
        made.append(len(texts))
        return index(texts, tokens)

    made: list[int] = []
    for _ in range(2):
        monkeypatch.setattr("evervec.stores.sqlite.word_parts.index", overtaken)
        ev.store.maintain()
        for process in (ev, other, reopen()):
            compare(process, truth, "ba zu", 50)
        for n in range(8):
            add(ev, truth, str(50 + n + 8 * len(made)), ("", "ba"))
        add(other, truth, "37", ("", "zu"))
        truth["37"] = truth.pop("37")
    assert made == [8, 8]


def test_a_deleted_record_stays_so_when_the_part_that_says_it_is_dropped(
    reopen: Callable[[], Evervec],
) -> None:
    ev = reopen()
    truth = full(ev)
    ev.delete("note", "0")
    del truth["0"]
    for round, more in enumerate((["35"], ["32", "33", "34", "35", "36"])):
        for id in ["1", "2", "3", *more]:
            add(ev, truth, id, ("", f"ba {WORDS[round]}"))
        ev.store.maintain()
        compare(reopen(), truth, "ba zu", 50)
    assert counts(ev) == (5, 1)


def test_maintenance_of_unchanged_parts_reads_and_writes_nothing(
    reopen: Callable[[], Evervec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in every `process_all`, and the parts of many records take long to examine."""
    ev, truth, draw = reopen(), Truth(), random.Random(1)
    for id in range(8 + 7):
        add(ev, truth, str(id), drawn(draw))
    ev.store.records.maintain()  # type: ignore[attr-defined]
    assert counts(ev) == (1, 0)
    monkeypatch.setattr("evervec.stores.sqlite.word_parts._SHARE_NEW", 1)
    ev.store.records.maintain()  # type: ignore[attr-defined]
    asked: list[str] = []
    with ev.store.db.writing(durable=False) as conn:  # type: ignore[attr-defined]
        conn.set_trace_callback(asked.append)
    with ev.store.db.reading() as conn:  # type: ignore[attr-defined]
        conn.set_trace_callback(asked.append)
    ev.store.records.maintain()  # type: ignore[attr-defined]
    assert asked
    assert not [one for one in asked if "from evervec_word_parts where tenant" in one]
    assert "begin immediate" not in asked
    for id in range(15, 15 + 8):  # enough for the next part
        add(ev, truth, str(id), drawn(draw))
    ev.store.records.maintain()  # type: ignore[attr-defined]
    assert counts(ev) == (2, 0)


def test_parts_are_compared_without_the_write_lock(
    reopen: Callable[[], Evervec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many parts that takes long, and others would wait."""
    ev, other = reopen(), reopen()
    truth = full(ev)
    are_latest = postings.are_latest
    written: list[str] = []

    def meanwhile(directories: Any) -> Any:
        written.append(str(100 + len(written)))
        add(other, truth, written[-1], ("", "ba zu"))
        return are_latest(directories)

    monkeypatch.setattr("evervec.stores.sqlite.word_parts.are_latest", meanwhile)
    for id in range(32):
        add(ev, truth, str(id), ("", "ba"))
    ev.store.maintain()
    assert written
    for process in (ev, other, reopen()):
        compare(process, truth, "ba zu", 50)


def test_parts_that_another_process_wrote_meanwhile_are_compared_again(
    reopen: Callable[[], Evervec], monkeypatch: pytest.MonkeyPatch
) -> None:
    ev, other = reopen(), reopen()
    truth = full(ev)
    for id in range(32):
        add(ev, truth, str(id), ("", "ba"))
    are_latest = postings.are_latest

    def overtaken(directories: Any) -> Any:
        monkeypatch.setattr("evervec.stores.sqlite.word_parts.are_latest", are_latest)
        for id in range(32):
            add(other, truth, str(id), ("", "zu"))
        other.store.maintain()
        return are_latest(directories)

    monkeypatch.setattr("evervec.stores.sqlite.word_parts.are_latest", overtaken)
    ev.store.maintain()
    assert counts(ev)[0] <= 8
    for process in (ev, other, reopen()):
        compare(process, truth, "ba zu", 50)


@pytest.mark.parametrize("seed", range(20))
def test_the_latest_entry_of_each_record_is_found(seed: int) -> None:
    draw = random.Random(seed)
    parts = [
        [draw.randrange(12) for _ in range(draw.randrange(5))] for _ in range(draw.randrange(5))
    ]
    found = postings.are_latest(
        [Directory(np.array(part, np.int64), np.ones(len(part), np.int32)) for part in parts]
    )
    entries = list(itertools.chain.from_iterable(parts))
    assert found.tolist() == [one not in entries[n + 1 :] for n, one in enumerate(entries)]
