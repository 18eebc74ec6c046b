"""Models that fastembed fetches. What it has fetched before is laid out by hand here."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from evervec.embedders.base import embed_query, spec_of
from evervec.embedders.encoder import LocalEmbedder
from evervec.embedders.fastembed import FastembedEmbedder
from evervec.embedders.local import local
from evervec.errors import ProviderUnavailable, SettingsError
from evervec.model.records import ModelSpec
from local.files import write_json

TEXTS = ["A man is eating food.", "The stock market fell sharply."]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache on a machine without a network."""
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


def test_it_says_what_it_is_before_anything_is_fetched(cache: Path) -> None:
    embedder = local("baai/bge-small-en-v1.5")
    assert isinstance(embedder, FastembedEmbedder)
    assert spec_of(embedder) == ModelSpec(
        "baai-bge-small-en-v1-5", "local", "BAAI/bge-small-en-v1.5", 384
    )


def test_a_model_that_cannot_be_fetched_is_an_outage(cache: Path) -> None:
    embedder = FastembedEmbedder("BAAI/bge-small-en-v1.5")
    for _ in range(2):
        with pytest.raises(ProviderUnavailable, match=r"cannot load BAAI/bge-small-en-v1\.5"):
            embedder.embed(TEXTS)


def test_an_unknown_model_is_told_with_the_likeliest_one() -> None:
    with pytest.raises(SettingsError, match=r"did you mean local:BAAI/bge-small-en-v1\.5\?"):
        local("BAAI/bge-smal-en-v1.5")
    with pytest.raises(SettingsError, match=r"'zzz' is neither a model .* see https"):
        local("zzz")


def test_a_model_that_was_fetched_makes_vectors(
    cache: Path, wheel_model: Path, wheel_tokenizer: Path, minilm: LocalEmbedder
) -> None:
    repository = cache / "models--Qdrant--all-MiniLM-L6-v2-onnx"
    snapshot = repository / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(snapshot.name)
    shutil.copy(wheel_model, snapshot / "model.onnx")
    shutil.copy(wheel_tokenizer, snapshot / "tokenizer.json")
    write_json(snapshot, "config.json", {"pad_token_id": 0})
    write_json(snapshot, "tokenizer_config.json", {"model_max_length": 256, "pad_token": "[PAD]"})
    write_json(snapshot, "special_tokens_map.json", {"pad_token": "[PAD]"})

    embedder = local("sentence-transformers/all-MiniLM-L6-v2")
    wanted = minilm.embed(TEXTS)
    np.testing.assert_allclose(embedder.embed(TEXTS), wanted, atol=1e-3)
    np.testing.assert_allclose(embed_query(embedder, TEXTS[0]), wanted[0], atol=1e-3)
    assert embedder.embed([]).shape == (0, 384)
