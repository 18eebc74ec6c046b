"""A folder with a cross-encoder in ONNX form."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

import evervec
from evervec.embedders.hashing import HashingEmbedder
from evervec.embedders.onnx_file import FLOAT, Graph
from evervec.errors import SettingsError
from evervec.rerankers.cross_encoder import CrossEncoder
from local.files import write_json

WORDS = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "tea": 4, "coffee": 5, "water": 6}
VALUES = [0.0, 0.0, 0.0, 0.0, 2.0, -2.0, 0.25]
"""what each word of a text adds to its logit"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model whose logit is the sum of the values of the words of the text, not of the query."""
    made = tmp_path / "my-judge"
    made.mkdir()
    tokenizer = Tokenizer(WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    tokenizer.save(str(made / "tokenizer.json"))
    write_model(made, np.array([VALUES], np.float32).T)
    return made


def write_model(folder: Path, values: "np.ndarray[tuple[int, int], np.dtype[np.float32]]") -> None:
    graph = Graph(["input_ids", "token_type_ids"])
    graph.weight("values", values)
    graph.weight("last", np.array([2], np.int64))
    graph.weight("tokens", np.array([1], np.int64))
    graph.node("Gather", ["values", "input_ids"], "each")
    graph.node("Cast", ["token_type_ids"], "types", to=FLOAT)
    graph.node("Unsqueeze", ["types", "last"], "of_text")
    graph.node("Mul", ["each", "of_text"], "counted")
    graph.node("ReduceSum", ["counted", "tokens"], "logits", keepdims=0)
    (folder / "model.onnx").write_bytes(graph.model("logits", ("batch", values.shape[1])))


def test_it_scores_each_text_beside_the_query(folder: Path) -> None:
    reranker = CrossEncoder(folder)
    assert reranker.name == "local:my-judge"
    texts = ["coffee", "tea tea", "", "water tea", "unknown words"]
    assert reranker.rerank("coffee coffee", texts) == [-2.0, 4.0, 0.0, 2.25, 0.0]
    many = ["tea " * (n % 7) for n in range(200)]
    assert reranker.rerank("tea", many) == [2.0 * (n % 7) for n in range(200)]


def test_pairs_are_cut_where_the_folder_says(folder: Path) -> None:
    write_json(folder, "tokenizer_config.json", {"model_max_length": 8})
    assert CrossEncoder(folder).rerank("water", ["tea " * 100]) == [8.0]


def test_a_model_of_two_classes_is_the_logit_of_the_second(folder: Path) -> None:
    write_model(folder, np.array([np.zeros(7), VALUES], np.float32).T)
    assert CrossEncoder(folder).rerank("tea", ["tea", "coffee"]) == [2.0, -2.0]


def test_another_model_is_refused(folder: Path) -> None:
    write_model(folder, np.ones((7, 3), np.float32))
    with pytest.raises(SettingsError, match=r"is not a cross-encoder: .* 3 numbers"):
        CrossEncoder(folder).rerank("tea", ["tea"])


def test_what_is_missing_or_damaged_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nowhere does not exist"):
        CrossEncoder(tmp_path / "nowhere")
    (folder / "model.onnx").write_bytes(b"rubbish")
    with pytest.raises(SettingsError, match="my-judge cannot be loaded"):
        CrossEncoder(folder).rerank("tea", ["tea"])
    (folder / "tokenizer.json").unlink()
    with pytest.raises(SettingsError, match=r"has no tokenizer\.json"):
        CrossEncoder(folder)


def test_a_search_is_reranked_by_its_name(folder: Path) -> None:
    # the first use loads the model, which takes longer on a busy machine
    with evervec.open("memory:", embedder=HashingEmbedder(64), rerank_seconds=60.0) as ev:
        for id in ("coffee", "tea", "water"):
            ev.add("drink", f"a cup of {id}", id=id)
        ev.process_all()
        hits = ev.search("a cup of coffee", rerank=f"local:{folder}")
        assert [hit.id for hit in hits] == ["tea", "water", "coffee"]
        expected = 1 / (1 + np.exp([-2.0, -0.25, 2.0]))
        assert [hit.relevance for hit in hits] == pytest.approx(expected)
