"""A folder of 700 files, from `evervec add` until it is searchable, beside the model alone.

The files are Markdown, each with a heading and one of SciFact's abstracts where the data lie beside
the project, else made-up text. "add" is the command in a new process: it reads the folder, saves,
embeds with the local model and writes vectors, full text and ledger to disk. "model" is a process
that embeds the very same chunks with the same embedder and keeps nothing. Both start Python and load
the model. The target is for processor time: the clock tells little on a machine that others use.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

import evervec
from benchmarks import made_up
from benchmarks.rounds import Measured, stopwatch, take_turns
from benchmarks.table import Line, at_most
from evervec.cli.files import COUNTED, FileRecords
from evervec.embedders.minilm import MiniLM

_SCIFACT = Path(__file__).parents[2] / "shared" / "data" / "scifact" / "corpus.jsonl"
_FILES = 700
_FEW = 100
_MODEL_ALONE = """
import json, sys
from evervec.embedders.minilm import MiniLM
embedder, texts = MiniLM(), json.load(sys.stdin)
for start in range(0, len(texts), embedder.max_batch):
    embedder.embed(texts[start : start + embedder.max_batch])
"""


class _Listening(MiniLM):
    """Keeps the texts that it is asked to embed, and answers at once."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += texts
        return made_up.vectors(len(texts), len(self.texts), self.dimensions)


def run(*, quick: bool) -> Sequence[Line]:
    files = _files(_FEW if quick else _FILES)
    chunks = _chunks(files)
    contenders = {"add": partial(_add, files), "model": partial(_model, chunks)}
    medians = take_turns(contenders, rounds=1 if quick else 3)
    what = f"{len(files)} files, {len(chunks)} chunks"
    own, other = medians["add"], medians["model"]
    return [
        Line(f"{what}: processor", "s", own["processor"], "the model alone", other["processor"],
             None if quick else at_most(1.05)),
        Line(f"{what}: clock", "s", own["clock"], "the model alone", other["clock"]),
    ]  # fmt: skip


def _add(files: dict[str, str], folder: Path) -> Measured:
    _write(files, folder / "notes")
    return _measured(["-m", "evervec", "add", "note", "notes"], folder)


def _model(chunks: list[str], folder: Path) -> Measured:
    return _measured(["-c", _MODEL_ALONE], folder, json.dumps(chunks))


def _measured(arguments: list[str], folder: Path, given: str = "") -> Measured:
    """Seconds of processor and clock that a Python process takes."""
    env = {**os.environ, "EVERVEC_EMBEDDER": "local"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with stopwatch() as watch:
        subprocess.run(
            [sys.executable, *arguments], cwd=folder, env=env, input=given, text=True,
            capture_output=True, check=True,
        )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"processor": spent, "clock": watch.seconds}


def _chunks(files: dict[str, str]) -> list[str]:
    """The texts that the embedder gets for these files."""
    listening = _Listening()
    with TemporaryDirectory() as folder, evervec.open("memory:", embedder=listening) as ev:
        _write(files, Path(folder))
        FileRecords(ev, "note", dict.fromkeys(COUNTED, 0), quiet=True).add([folder])
        assert ev.process_all().succeeded == len(files)
    return listening.texts


def _write(files: dict[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _files(count: int) -> dict[str, str]:
    if not _SCIFACT.exists():
        texts = made_up.texts(count, 200)
        return {f"{n}.md": f"# Note {n}\n\n{text}\n" for n, text in enumerate(texts)}
    with _SCIFACT.open(encoding="utf-8") as lines:
        found = [json.loads(line) for _, line in zip(range(count), lines, strict=False)]
    return {f"{one['id']}.md": f"# {one['title']}\n\n{one['text']}\n" for one in found}
