"""A folder with a sentence-transformers model in ONNX form."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from evervec.embedders.base import spec_of
from evervec.embedders.encoder import LocalEmbedder
from evervec.embedders.local import local
from evervec.embedders.model_folder import ModelFolder
from evervec.embedders.onnx_file import Graph
from evervec.errors import SettingsError
from evervec.model.records import ModelSpec
from local.files import write_json

TEXTS = ["A man is eating food.", "The stock market fell sharply.", "a " * 300]


def test_it_makes_the_vectors_of_its_model(model_folder: Path, minilm: LocalEmbedder) -> None:
    embedder = local(str(model_folder))
    assert spec_of(embedder) == ModelSpec("my-model", "local", "my-model", 384)
    made, wanted = embedder.embed(TEXTS), minilm.embed(TEXTS)
    assert np.einsum("ij,ij->i", made, wanted).min() > 0.99999


def test_the_model_may_lie_beside_its_tokenizer(model_folder: Path) -> None:
    (model_folder / "onnx" / "model.onnx").rename(model_folder / "model.onnx")
    assert ModelFolder(model_folder).embed(TEXTS).shape == (3, 384)


def test_a_folder_may_be_relative(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model_folder.parent)
    assert local("my-model").model == "my-model"
    assert local("./my-model").model == "my-model"
    monkeypatch.chdir(model_folder)
    assert local(".").model == "my-model"


def test_dimensions_come_from_the_model_when_no_file_says_them(model_folder: Path) -> None:
    (model_folder / "config.json").unlink()
    assert ModelFolder(model_folder).dimensions == 384


@pytest.mark.parametrize("config", [{"pooling_mode_cls_token": True}, {"pooling_mode": "cls"}])
def test_pooling_may_be_by_the_first_token(
    model_folder: Path, minilm: LocalEmbedder, config: dict[str, object]
) -> None:
    write_json(model_folder, "1_Pooling/config.json", config)
    by_first = ModelFolder(model_folder).embed(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(by_first, axis=1), 1, atol=1e-5)
    assert np.einsum("ij,ij->i", by_first, minilm.embed(TEXTS)).max() < 0.95


def test_texts_are_cut_where_the_folder_says(model_folder: Path) -> None:
    write_json(model_folder, "sentence_bert_config.json", {"max_seq_length": 8})
    cut, same = ModelFolder(model_folder).embed(["one two three four five six", TEXTS[0]])
    longer = ModelFolder(model_folder).embed(["one two three four five six seven eight"])[0]
    np.testing.assert_allclose(longer, cut, atol=1e-6)
    assert cut @ same < 0.9


def test_questions_and_texts_begin_as_the_folder_says(
    model_folder: Path, minilm: LocalEmbedder
) -> None:
    prompts = {"query": "question: ", "document": "passage: "}
    write_json(model_folder, "config_sentence_transformers.json", {"prompts": prompts})
    embedder = ModelFolder(model_folder)
    question, text = minilm.embed(["question: why?", "passage: because"])
    np.testing.assert_allclose(embedder.embed_query("why?"), question, atol=1e-4)
    np.testing.assert_allclose(embedder.embed(["because"])[0], text, atol=1e-4)


def test_a_model_that_pools_by_itself_is_left_to_it(model_folder: Path) -> None:
    graph = Graph(["input_ids", "attention_mask"])
    graph.weight("table", np.eye(512, 3, dtype=np.float32) + 1)
    graph.weight("first", np.zeros((), np.int64))
    graph.node("Gather", ["input_ids", "first"], "start", axis=1)
    graph.node("Gather", ["table", "start"], "sentence_embedding")
    (model_folder / "model.onnx").write_bytes(graph.model("sentence_embedding", ("batch", 3)))
    write_json(model_folder, "config.json", {"hidden_size": 3})
    first = Tokenizer.from_file(str(model_folder / "tokenizer.json")).encode("text").ids[0]
    assert first > 2
    np.testing.assert_allclose(
        ModelFolder(model_folder).embed(["text"]), np.full((1, 3), 3**-0.5), atol=1e-6
    )


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"folder .*nowhere does not exist"):
        local(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("name", ["onnx/model.onnx", "tokenizer.json"])
def test_a_missing_file_is_named(model_folder: Path, name: str) -> None:
    (model_folder / name).unlink()
    with pytest.raises(SettingsError, match=f"has no .*{name}: export the model with"):
        ModelFolder(model_folder)


def test_a_file_that_is_not_json_is_named(model_folder: Path) -> None:
    (model_folder / "config.json").write_text("{")
    with pytest.raises(SettingsError, match=r"config\.json is not JSON"):
        ModelFolder(model_folder)


@pytest.mark.parametrize("name", ["onnx/model.onnx", "tokenizer.json"])
def test_a_file_that_cannot_be_loaded_is_told(model_folder: Path, name: str) -> None:
    (model_folder / name).unlink()
    (model_folder / name).write_bytes(b"rubbish")
    with pytest.raises(SettingsError, match="my-model cannot be loaded"):
        ModelFolder(model_folder).embed(["text"])


def test_a_step_that_evervec_cannot_do_is_named(model_folder: Path) -> None:
    write_json(model_folder, "modules.json", [{"type": "sentence_transformers.models.Dense"}])
    with pytest.raises(SettingsError, match=r"modules after the transformer \(Dense\)"):
        ModelFolder(model_folder)


def test_a_pooling_that_evervec_cannot_do_is_named(model_folder: Path) -> None:
    write_json(model_folder, "1_Pooling/config.json", {"pooling_mode_lasttoken": True})
    with pytest.raises(SettingsError, match=r"unsupported pooling \(lasttoken\)"):
        ModelFolder(model_folder)


def test_an_input_that_evervec_cannot_give_is_named(model_folder: Path) -> None:
    graph = Graph(["input_ids", "pixels"])
    graph.node("Add", ["input_ids", "pixels"], "sum")
    graph.node("Cast", ["sum"], "sentence_embedding", to=1)
    (model_folder / "model.onnx").write_bytes(graph.model("sentence_embedding", ("batch", 384)))
    with pytest.raises(SettingsError, match="unsupported inputs pixels"):
        ModelFolder(model_folder).embed(["text"])


def test_dimensions_that_contradict_the_model_are_told(model_folder: Path) -> None:
    write_json(model_folder, "config.json", {"hidden_size": 768})
    embedder = ModelFolder(model_folder)
    with pytest.raises(SettingsError, match=r"has 384 dimensions, but its config\.json says 768"):
        embedder.embed(["text"])
