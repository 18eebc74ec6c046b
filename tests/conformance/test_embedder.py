"""Embedders: one sound row a text, the same every time, from any thread."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from evervec import Embedder, ProviderUnavailable
from evervec.embedders.base import embed, embed_query, spec_of
from support.engines import EMBEDDERS, MAKERS

TEXTS = [
    "a short text", "a", "?", "日本語のテキスト", "e\u0301 \U0001f468\u200d\U0001f469", "word " * 2000,
    "line\nline\n\nline", "x" * 5000,
]  # fmt: skip


@pytest.fixture(params=MAKERS)
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return EMBEDDERS[request.param]()


@pytest.fixture(params=sorted(EMBEDDERS))
def any_embedder(request: pytest.FixtureRequest) -> Embedder:
    return EMBEDDERS[request.param]()


def test_it_says_what_it_is(any_embedder: Embedder) -> None:
    assert isinstance(any_embedder, Embedder)
    assert any_embedder.name
    assert any_embedder.max_batch >= 1
    spec = spec_of(any_embedder)
    assert (spec is None) == (any_embedder.dimensions == 0)
    if spec is not None:
        assert (spec.provider, spec.model) == (any_embedder.name, any_embedder.model)
        assert spec.dimensions == any_embedder.dimensions
        assert spec.name


def test_it_either_makes_vectors_or_says_that_it_is_away(any_embedder: Embedder) -> None:
    if any_embedder.dimensions:
        assert any_embedder.embed(["text"]).shape == (1, any_embedder.dimensions)
    else:
        with pytest.raises(ProviderUnavailable):
            any_embedder.embed(["text"])


def test_one_row_a_text_of_the_right_shape_and_type(embedder: Embedder) -> None:
    rows = embedder.embed(TEXTS)
    assert rows.shape == (len(TEXTS), embedder.dimensions)
    assert rows.dtype == np.float32


def test_rows_are_finite_and_not_zero_whatever_the_text(embedder: Embedder) -> None:
    rows = embedder.embed(TEXTS)
    assert np.isfinite(rows).all()
    assert (np.linalg.norm(rows, axis=1) > 0).all()


def test_what_evervec_uses_of_it_has_unit_length(embedder: Embedder) -> None:
    answer = embed(embedder, TEXTS)
    assert answer.errors == {}
    assert np.linalg.norm(answer.vectors, axis=1) == pytest.approx(1.0, abs=1e-5)
    assert np.linalg.norm(embed_query(embedder, "a question")) == pytest.approx(1.0, abs=1e-5)


def test_the_same_text_has_the_same_vector_alone_and_in_company(embedder: Embedder) -> None:
    together = embedder.embed(TEXTS)
    for row, text in zip(together, TEXTS, strict=True):
        assert embedder.embed([text])[0] == pytest.approx(row, abs=1e-4)
    assert embedder.embed(TEXTS) == pytest.approx(together, abs=1e-4)


def test_a_full_batch_is_taken(embedder: Embedder) -> None:
    texts = [f"text number {n}" for n in range(embedder.max_batch)]
    assert len(embedder.embed(texts)) == len(texts)


def test_several_threads_get_what_one_would(embedder: Embedder) -> None:
    batches = [[f"{text} {n}" for text in TEXTS[:4]] for n in range(16)]
    alone = [embedder.embed(batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        for made, wanted in zip(pool.map(embedder.embed, batches), alone, strict=True):
            assert made == pytest.approx(wanted, abs=1e-4)


def test_a_text_is_nearer_to_its_like_than_to_others(embedder: Embedder) -> None:
    near, like, far = embed(
        embedder,
        ["a red apple and a pear", "an apple and a red pear", "the stock market fell today"],
    ).vectors
    assert near @ like > near @ far
