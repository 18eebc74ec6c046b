"""Records through an OpenAI-style server that takes 50 ms a call and serves 8 calls at once.

1,000 records of 300 words, 64 texts in a call, 16 calls in flight, of which the server lets 8 wait:
with no more than 8 a slot stands empty while an answer travels back and the next call travels
there, as a line below shows. The server is the tests' own (`tests/support/provider`), in another
process. Beside evervec stands what the server allows: 8 calls in every 50 ms. Calls are by the
server's log, from the start of the first one to the end of the last one; those of `process_all`
are by its whole time, from the first claim to the last commit. Beside them stands, too, what a
bare client reaches here with as many threads, which do nothing but send the same texts and read
the answers: a busy machine holds both back. The records are prose, of sentences and paragraphs;
below are the same words without a single full stop, which are more work to cut.
"""

from __future__ import annotations

import sys
import time
from base64 import b64decode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np

import evervec
from benchmarks.made_up import texts
from benchmarks.rounds import Measured, stopwatch, take_turns
from benchmarks.table import Line, at_least
from evervec.chunking import ContentChunker, chunk

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.provider import Behaviour
from support.provider_process import ProviderProcess

_WORDS, _RECORDS = 300, 1000
_LATENCY, _SLOTS, _BATCH = 0.05, 8, 64
_IN_FLIGHT = 2 * _SLOTS


def run(*, quick: bool) -> Sequence[Line]:
    words = texts(_RECORDS, _WORDS)
    prose = [_as_prose(text) for text in words]
    with ProviderProcess(Behaviour(latency=_LATENCY, slots=_SLOTS)) as server:
        medians = take_turns(
            {
                "prose": lambda folder: _evervec(folder, prose, server, _IN_FLIGHT),
                "few": lambda folder: _evervec(folder, prose, server, _SLOTS),
                "words": lambda folder: _evervec(folder, words, server, _IN_FLIGHT),
                "bare": lambda folder: _bare(prose, server, _IN_FLIGHT),
                "few bare": lambda folder: _bare(prose, server, _SLOTS),
            },
            rounds=3 if quick else 7,
        )
    most, beside = _SLOTS / _LATENCY, f"{_SLOTS} in {_LATENCY * 1000:g} ms"
    found, plain, few = medians["prose"], medians["words"], medians["few"]
    bare, few_bare = medians["bare"]["log"], medians["few bare"]["log"]
    return [
        Line("calls, by the server's log", "/s", found["log"], beside, most, at_least(0.9)),
        Line("  of the same calls", "/s", found["log"], "a bare client", bare),
        Line("calls, process_all", "/s", found["whole"], beside, most),
        Line("  records", "/s", found["records"]),
        Line("  processor time a record", "µs", found["cost"]),
        Line("  calls under way, at most", "", found["peak"]),
        Line(f"calls, {_SLOTS} in flight", "/s", few["log"], beside, most),
        Line("  of the same calls", "/s", few["log"], "a bare client", few_bare),
        Line("calls without full stops", "/s", plain["log"], beside, most),
        Line("  processor time a record", "µs", plain["cost"]),
    ]


def _as_prose(text: str) -> str:
    """Sentences of 14 words, four of them a paragraph."""
    words = text.split()
    sentences = [" ".join(words[i : i + 14]).capitalize() + "." for i in range(0, len(words), 14)]
    return "\n\n".join(" ".join(sentences[i : i + 4]) for i in range(0, len(sentences), 4))


def _evervec(folder: Path, made: list[str], server: ProviderProcess, in_flight: int) -> Measured:
    with evervec.open(
        folder / "records.db",
        embedder="openai",
        openai_url=server.openai_url,
        openai_key="sk-any",
        provider_batch=_BATCH,
        concurrency=in_flight,
    ) as ev:
        list(ev.add_many("note", ({"id": n, "text": text} for n, text in enumerate(made))))
        server.forget()
        busy = time.process_time()
        with stopwatch() as watch:
            result = ev.process_all()
        busy = time.process_time() - busy
        getattr(ev.embedder, "close", int)()
    assert result.succeeded == len(made)
    rate, peak = _seen(server)
    return {
        "log": rate,
        "whole": len(server.calls()) / watch.seconds,
        "records": len(made) / watch.seconds,
        "cost": 1e6 * busy / len(made),
        "peak": peak,
    }


def _bare(made: list[str], server: ProviderProcess, threads: int) -> Measured:
    pieces = [piece for text in made for piece in chunk(ContentChunker(), None, text)[1]]
    server.forget()
    with httpx.Client(headers={"Authorization": "Bearer sk-any"}) as client:

        def call(start: int) -> None:
            asked = {
                "model": "text-embedding-3-small", "dimensions": 1024,
                "encoding_format": "base64", "input": pieces[start : start + _BATCH],
            }  # fmt: skip
            answer = client.post(f"{server.openai_url}/embeddings", json=asked).json()
            np.stack([np.frombuffer(b64decode(row["embedding"]), "<f4") for row in answer["data"]])

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(call, range(0, len(pieces), _BATCH)))
    return {"log": _seen(server)[0]}


def _seen(server: ProviderProcess) -> tuple[float, float]:
    """Calls a second, and how many were under way at most."""
    calls, seen = server.calls(), server.seen()
    assert seen.statuses == {200: len(calls)}
    took = max(call.end or 0.0 for call in calls) - min(call.start for call in calls)
    return len(calls) / took, float(seen.peak)
