"""What the files of a sentence-transformers model say, read without torch."""

import sys
from pathlib import Path

import pytest

from evervec.embedders.model_folder import ModelFiles
from evervec.embedders.st import StEmbedder
from evervec.embedders.st.description import Description, describe_model
from evervec.errors import SettingsError
from local.files import write_json


@pytest.fixture
def folder(tmp_path: Path, wheel_tokenizer: Path) -> Path:
    """The small files of a model; it has no weights."""
    folder = tmp_path / "small"
    for name in ("1_Pooling", "2_Dense"):
        (folder / name).mkdir(parents=True)
    (folder / "tokenizer.json").symlink_to(wheel_tokenizer)
    write_json(folder, "config.json", {"max_position_embeddings": 512})
    write_json(folder, "sentence_bert_config.json", {"max_seq_length": 128})
    write_json(folder, "1_Pooling/config.json", {"word_embedding_dimension": 48})
    modules(folder, "Transformer", "Pooling", "Normalize")
    return folder


def modules(folder: Path, *kinds: str) -> None:
    paths = {"Pooling": "1_Pooling", "Dense": "2_Dense"}
    rows = [{"type": f"sentence_transformers.models.{k}", "path": paths.get(k, "")} for k in kinds]
    write_json(folder, "modules.json", rows)


def described(folder: Path) -> Description:
    return describe_model(ModelFiles(folder))


def test_dimensions_are_those_of_the_pooling(folder: Path) -> None:
    assert described(folder).dimensions == 48
    both = {"embedding_dimension": 48, "pooling_mode": ["cls", "mean"]}
    write_json(folder, "1_Pooling/config.json", both)
    assert described(folder).dimensions == 96
    old = {"word_embedding_dimension": 48, "pooling_mode_cls_token": True}
    write_json(folder, "1_Pooling/config.json", {**old, "pooling_mode_mean_tokens": True})
    assert described(folder).dimensions == 96


def test_dimensions_are_those_of_a_dense_module_behind_it(folder: Path) -> None:
    modules(folder, "Transformer", "Pooling", "Dense", "Normalize")
    write_json(folder, "2_Dense/config.json", {"in_features": 48, "out_features": 20})
    assert described(folder).dimensions == 20


def test_dimensions_are_unknown_behind_an_unknown_module(folder: Path) -> None:
    modules(folder, "Transformer", "Pooling", "Whatever")
    assert described(folder).dimensions is None
    (folder / "modules.json").unlink()
    assert described(folder).dimensions is None


def test_the_window_is_what_the_files_allow(folder: Path) -> None:
    assert described(folder).window == 128
    write_json(folder, "sentence_bert_config.json", {})
    assert described(folder).window == 512
    write_json(folder, "tokenizer_config.json", {"model_max_length": 384})
    assert described(folder).window == 384
    write_json(folder, "config.json", {})
    write_json(folder, "tokenizer_config.json", {"model_max_length": 10**30})
    assert described(folder).window is None


@pytest.mark.parametrize(
    ("config", "text", "query"),
    [
        ({}, "", ""),
        ({"prompts": {"query": "q: ", "document": "d: "}}, "d: ", "q: "),
        ({"prompts": {"query": "q: ", "passage": "p: "}}, "p: ", "q: "),
        ({"prompts": {"any": "a: "}, "default_prompt_name": "any"}, "a: ", "a: "),
        ({"prompts": {"query": "q: ", "document": ""}}, "", "q: "),
        ({"prompts": None}, "", ""),
    ],
)
def test_prompts_are_those_for_texts_and_for_queries(
    folder: Path, config: dict[str, object], text: str, query: str
) -> None:
    write_json(folder, "config_sentence_transformers.json", config)
    found = described(folder)
    assert (found.text_prompt, found.query_prompt) == (text, query)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the packages were installed; nothing imports them before the first text."""
    monkeypatch.setattr("evervec.embedders.st.require", lambda packages, extra: None)


@pytest.mark.usefixtures("installed")
def test_making_an_embedder_and_counting_tokens_loads_neither_torch_nor_the_model(
    folder: Path,
) -> None:
    embedder = StEmbedder(str(folder), text_prompt="text: ")
    assert (embedder.name, embedder.model, embedder.dimensions) == ("st", "small", 48)
    assert embedder.window == 128
    assert embedder.count_tokens("two words") == 2
    assert embedder.text_prompt == "text: "
    (folder / "tokenizer.json").unlink()
    assert StEmbedder(str(folder)).count_tokens("two words") == 4, "an estimate"


@pytest.mark.usefixtures("installed")
def test_wrong_settings_are_told_at_once(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"folder .*nowhere does not exist"):
        StEmbedder(str(tmp_path / "nowhere"))
    with pytest.raises(SettingsError, match="st_precision='quarter': choose one of auto, single"):
        StEmbedder(str(folder), precision="quarter")
    with pytest.raises(SettingsError, match="give a model: st:NAME"):
        StEmbedder("")


@pytest.mark.parametrize("package", ["torch", "sentence_transformers"])
def test_a_missing_package_is_told_with_its_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SettingsError) as told:
        StEmbedder(str(folder))
    assert package in str(told.value)
    assert "pip install 'evervec[st]'" in str(told.value)
