"""Records through an OpenAI-style server that takes 50 ms a call and serves 8 calls at once.

1,000 records of 300 words, 64 texts in a call, 8 calls in flight. The server is the tests' own
(`tests/support/provider`), in another process. Beside evervec stands what the server allows:
8 calls in every 50 ms. The first line is by the server's log, from the start of the first call
to the end of the last one; the second is `process_all` as a whole, from the first claim to the
last commit. Beside it stands, too, what a bare client reaches here with 8 threads that do nothing
but send the same texts and read the answers: a busy machine holds both back. The records are
prose, of sentences and paragraphs; below are the same words without a single full stop, which
are more work to cut.
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


def run(*, quick: bool) -> Sequence[Line]:
    words = texts(_RECORDS, _WORDS)
    prose = [_as_prose(text) for text in words]
    with ProviderProcess(Behaviour(latency=_LATENCY, slots=_SLOTS)) as server:
        medians = take_turns(
            {
                "prose": lambda folder: _evervec(folder, prose, server),
                "words": lambda folder: _evervec(folder, words, server),
                "bare": lambda folder: _bare(prose, server),
            },
            rounds=3 if quick else 7,
        )
    most, beside = _SLOTS / _LATENCY, f"{_SLOTS} in {_LATENCY * 1000:g} ms"
    found, plain, bare = medians["prose"], medians["words"], medians["bare"]
    return [
        Line("calls, by the server's log", "/s", found["log"], beside, most, at_least(0.9)),
        Line("  of the same calls", "/s", found["log"], "a bare client", bare["log"]),
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
    rate, peak = _seen(server)
    return {
        "log": rate,
        "whole": len(server.calls()) / watch.seconds,
        "records": len(made) / watch.seconds,
        "cost": 1e6 * busy / len(made),
        "peak": peak,
    }


def _bare(made: list[str], server: ProviderProcess) -> Measured:
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

        with ThreadPoolExecutor(_SLOTS) as threads:
            list(threads.map(call, range(0, len(pieces), _BATCH)))
    return {"log": _seen(server)[0]}


def _seen(server: ProviderProcess) -> tuple[float, float]:
    """Calls a second, and how many were under way at most."""
    calls, seen = server.calls(), server.seen()
    assert seen.statuses == {200: len(calls)}
    took = max(call.end or 0.0 for call in calls) - min(call.start for call in calls)
    return len(calls) / took, float(seen.peak)
