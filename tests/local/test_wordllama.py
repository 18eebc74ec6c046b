"""The static model: fast vectors, the same as its own package makes."""

import json
import subprocess
import sys

import numpy as np
import pytest

from evervec.embedders.base import embed, spec_of
from evervec.embedders.local import local
from evervec.embedders.wordllama import WordLlamaEmbedder
from evervec.model.records import ModelSpec

TEXTS = ["A man is eating food.", "Someone has a meal.", "The stock market fell sharply."]


@pytest.fixture(scope="module")
def wordllama() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


def test_it_says_what_it_is(wordllama: WordLlamaEmbedder) -> None:
    assert spec_of(wordllama) == ModelSpec("wordllama-256", "local", "wordllama-256", 256)
    assert isinstance(local("wordllama"), WordLlamaEmbedder)
    assert isinstance(local(wordllama.model), WordLlamaEmbedder)


def test_a_paraphrase_is_nearer_than_something_else(wordllama: WordLlamaEmbedder) -> None:
    vectors = wordllama.embed(TEXTS)
    near, far = vectors[1:] @ vectors[0]
    assert near > 0.3
    assert far < 0.1


def test_its_vectors_are_those_of_its_package(wordllama: WordLlamaEmbedder) -> None:
    program = """
import json, pathlib, sys, wordllama
folder = pathlib.Path(wordllama.__file__).parent
model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
print(json.dumps(model.embed(json.load(sys.stdin), norm=True).tolist()))
"""
    # In a process of its own: the package sets up logging when it is imported.
    told = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(TEXTS), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    np.testing.assert_allclose(wordllama.embed(TEXTS), json.loads(told.stdout), atol=1e-5)


def test_odd_texts_have_sound_vectors(wordllama: WordLlamaEmbedder) -> None:
    answer = embed(wordllama, ["", " ", "🙂", "机器学习", "\x00", "long " * 20_000])
    assert answer.errors == {}
    np.testing.assert_allclose(np.linalg.norm(answer.vectors, axis=1), 1, atol=1e-5)


def test_no_texts_have_no_vectors(wordllama: WordLlamaEmbedder) -> None:
    assert wordllama.embed([]).shape == (0, 256)
