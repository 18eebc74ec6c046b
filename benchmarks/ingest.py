"""From `add_many` to searchable by text and vector, with an embedder of no cost.

Records of 60 words. Evervec writes record, full text, job, claim, vector, ledger,
attempt and finish to disk. Beside it:

- LangChain's indexing API (`langchain_peer`): incremental, batches of 1,000, its vectors
  in memory, with neither queue nor full text. Its record manager is on SQLite in memory,
  the fastest that its documentation offers for use; on a file, and in a dict ("for
  testing purposes", it says) it is shown as well.
- a bare script (`bare_ingest`) that writes the rows that evervec writes.

Then all the same records again, unchanged: nothing is enqueued, nothing embedded, and
they can be found as soon as `add_many` ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import evervec
from benchmarks.bare_ingest import BareIngest
from benchmarks.langchain_peer import LangChain, documents, has_sql, over_dict, over_sql
from benchmarks.made_up import NoCost, texts
from benchmarks.rounds import Contender, Measured, stopwatch, take_turns
from benchmarks.table import Line, at_least

_WORDS = 60
_SQL = "LangChain, SQLite in memory"
_FILE = "LangChain, SQLite file"
_DICT = "LangChain, a dict"


def run(*, quick: bool) -> Sequence[Line]:
    made = texts(4_000 if quick else 20_000, _WORDS)
    contenders: dict[str, Contender] = {
        "evervec": lambda folder: _evervec(folder, made),
        "bare": lambda folder: _bare(folder, made),
        _DICT: lambda _: _langchain(over_dict(), made),
    }
    if has_sql():
        contenders[_SQL] = lambda _: _langchain(over_sql(None), made)
        contenders[_FILE] = lambda folder: _langchain(over_sql(folder / "known.db"), made)
    medians = take_turns(contenders, rounds=3)
    own, bare = medians.pop("evervec"), medians.pop("bare")
    peers = {name: medians[name] for name in (_SQL, _FILE, _DICT) if name in medians}
    unit, targets = "records/s", {_SQL: at_least(1)}
    lines = [
        Line("first load", unit, own["load"], name, peer["load"], targets.get(name))
        for name, peer in peers.items()
    ]
    if not has_sql():
        lines.append(Line("first load", unit, own["load"], f"{_SQL}: needs langchain-classic"))
    lines += [
        Line("first load", unit, own["load"], "bare", bare["load"], at_least(0.7, aim=True)),
        Line("  add_many", unit, own["add"], "bare", bare["add"]),
        Line("  process_all", unit, own["process"], "bare", bare["process"]),
        Line("unchanged", unit, own["again"], "its first load", own["load"], at_least(5)),
    ]
    return lines + [
        Line("unchanged", unit, own["again"], name, peer["again"]) for name, peer in peers.items()
    ]


def _evervec(folder: Path, made: list[str]) -> Measured:
    count = len(made)
    records = [{"id": str(place), "text": text} for place, text in enumerate(made)]
    embedder = NoCost()
    with evervec.open(folder / "records.db", embedder=embedder) as ev:
        with stopwatch() as add:
            tickets = list(ev.add_many("note", records))
        with stopwatch() as process:
            result = ev.process_all()
        assert len(tickets) == result.succeeded == embedder.texts == count
        assert ev.search(made[-1], k=1, mode="text")[0].id == str(count - 1)
        assert len(ev.search(made[0], k=10, mode="semantic")) == 10
        asked = embedder.texts
        with stopwatch() as again:
            list(ev.add_many("note", records))
        assert ev.queue.stats().pending == 0
        assert ev.process_all().processed == 0
        assert embedder.texts == asked
        assert len(ev.queue.history("note", "0")) == 1
    return {
        "load": count / (add.seconds + process.seconds),
        "add": count / add.seconds,
        "process": count / process.seconds,
        "again": count / again.seconds,
    }


def _langchain(peer: LangChain, made: list[str]) -> Measured:
    given = documents(made)
    with stopwatch() as load:
        counts = peer.load(given)
    assert counts["num_added"] == peer.embedder.texts == len(made)
    again = given[: len(given) // 4]  # it is slow at this, and no faster with more
    with stopwatch() as skip:
        counts = peer.load(again)
    assert counts["num_skipped"] == len(again)
    assert peer.embedder.texts == len(made)
    return {"load": len(made) / load.seconds, "again": len(again) / skip.seconds}


def _bare(folder: Path, made: list[str]) -> Measured:
    script = BareIngest(folder / "records.db", NoCost())
    with stopwatch() as add:
        script.add(made)
    with stopwatch() as process:
        done = script.process()
    assert done == len(made)
    script.close()
    return {
        "load": done / (add.seconds + process.seconds),
        "add": done / add.seconds,
        "process": done / process.seconds,
    }
