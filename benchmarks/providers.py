"""Records through an OpenAI-style server that takes 50 ms a call and serves 8 calls at once.

1,000 records of 300 words, 64 texts in a call, 8 calls in flight. The server is the tests' own
(`tests/support/provider`), in another process. Beside evervec stands what the server allows:
8 calls in every 50 ms. The first line is by the server's log, from the start of the first call
to the end of the last one; the second is `process_all` as a whole, from the first claim to the
last commit. The records are prose, of sentences and paragraphs; below are the same words without
a single full stop, which are more work to cut.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import evervec
from benchmarks.made_up import texts
from benchmarks.rounds import Measured, stopwatch, take_turns
from benchmarks.table import Line, at_least

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.provider import Behaviour
from support.provider_process import ProviderProcess

_WORDS, _RECORDS = 300, 1000
_LATENCY, _SLOTS, _BATCH = 0.05, 8, 64


def run(*, quick: bool) -> Sequence[Line]:
    words = texts(_RECORDS, _WORDS)
    prose = [_as_prose(text) for text in words]
    with ProviderProcess(Behaviour(latency=_LATENCY, slots=_SLOTS)) as server:
        medians = take_turns(
            {
                "prose": lambda folder: _evervec(folder, prose, server),
                "words": lambda folder: _evervec(folder, words, server),
            },
            rounds=3 if quick else 7,
        )
    most, beside = _SLOTS / _LATENCY, f"{_SLOTS} in {_LATENCY * 1000:g} ms"
    found, plain = medians["prose"], medians["words"]
    return [
        Line("calls, by the server's log", "/s", found["log"], beside, most, at_least(0.9)),
        Line("calls, process_all", "/s", found["whole"], beside, most),
        Line("  records", "/s", found["records"]),
        Line("  processor time a record", "µs", found["cost"]),
        Line("  calls under way, at most", "", found["peak"]),
        Line("calls without full stops", "/s", plain["log"], beside, most),
        Line("  processor time a record", "µs", plain["cost"]),
    ]


def _as_prose(text: str) -> str:
    """Sentences of 14 words, four of them a paragraph."""
    words = text.split()
    sentences = [" ".join(words[i : i + 14]).capitalize() + "." for i in range(0, len(words), 14)]
    return "\n\n".join(" ".join(sentences[i : i + 4]) for i in range(0, len(sentences), 4))


def _evervec(folder: Path, made: list[str], server: ProviderProcess) -> Measured:
    with evervec.open(
        folder / "records.db",
        embedder="openai",
        openai_url=server.openai_url,
        openai_key="sk-any",
        provider_batch=_BATCH,
        concurrency=_SLOTS,
    ) as ev:
        list(ev.add_many("note", ({"id": n, "text": text} for n, text in enumerate(made))))
        server.forget()
        busy = time.process_time()
        with stopwatch() as watch:
            result = ev.process_all()
        busy = time.process_time() - busy
        getattr(ev.embedder, "close", int)()
    assert result.succeeded == len(made)
    calls, seen = server.calls(), server.seen()
    assert seen.statuses == {200: len(calls)}
    took = max(call.end or 0.0 for call in calls) - min(call.start for call in calls)
    return {
        "log": len(calls) / took,
        "whole": len(calls) / watch.seconds,
        "records": len(made) / watch.seconds,
        "cost": 1e6 * busy / len(made),
        "peak": float(seen.peak),
    }
