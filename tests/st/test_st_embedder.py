"""`st:` embedders against sentence-transformers itself."""

import dataclasses
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import evervec
from evervec.embedders.base import spec_of
from evervec.embedders.st import StEmbedder, replica
from evervec.embedders.st.lanes import OutOfMemory, padded
from evervec.embedders.st.model import Model
from evervec.embedders.st.replica import (
    FEW_SHAPES,
    FREE,
    Padding,
    TextReplica,
    TokenReplica,
    features,
)
from evervec.errors import ProviderUnavailable, SettingsError
from evervec.model.records import ModelSpec
from st.conftest import Open
from support.small_models import WIDTH, save_small_model

TEXTS = [
    "a short text", "a", "", "日本語のテキスト", "word " * 2000, "line\nline\n\nline", "x" * 5000,
    *(f"text {n} of {'some ' * (n % 40)} length" for n in range(200)),
]  # fmt: skip


def reference(folder: Path, **options: Any) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu", **options)


def inside(embedder: StEmbedder) -> Model:
    """The model, in this process."""
    model = embedder._running()
    assert isinstance(model, Model)
    return model


def test_vectors_are_those_of_encode(folder: Path, opened: Open) -> None:
    embedder = opened(folder)
    assert spec_of(embedder) == ModelSpec("small-bert", "st", "small-bert", WIDTH)
    assert embedder.window == 128
    np.testing.assert_allclose(embedder.embed(TEXTS), reference(folder).encode(TEXTS), atol=1e-5)
    assert embedder.embed([]).shape == (0, WIDTH)


def test_batches_of_any_size_make_the_same_vectors(folder: Path, opened: Open) -> None:
    wanted = opened(folder).embed(TEXTS)
    for tokens in (1, 50, 100_000):
        made = opened(folder, batch_tokens=tokens).embed(TEXTS)
        np.testing.assert_allclose(made, wanted, atol=1e-5)


def test_prompts_are_those_of_the_model_for_texts_and_queries(tmp_path: Path, opened: Open) -> None:
    folder = save_small_model(
        tmp_path / "prompted", prompts={"query": "ask: ", "document": "say: "}
    )
    embedder, model = opened(folder), reference(folder)
    np.testing.assert_allclose(
        embedder.embed(["because"]), model.encode_document(["because"]), atol=1e-5
    )
    np.testing.assert_allclose(embedder.embed_query("why?"), model.encode_query("why?"), atol=1e-5)
    own = opened(folder, text_prompt="text: ", query_prompt="query: ")
    np.testing.assert_allclose(own.embed(["a"]), model.encode(["a"], prompt="text: "), atol=1e-5)
    np.testing.assert_allclose(own.embed_query("a"), model.encode("a", prompt="query: "), atol=1e-5)


def test_a_dense_module_changes_the_dimensions(tmp_path: Path, opened: Open) -> None:
    folder = save_small_model(tmp_path / "dense", dense=20, pooling="cls")
    embedder = opened(folder)
    assert embedder.dimensions == 20
    np.testing.assert_allclose(embedder.embed(TEXTS), reference(folder).encode(TEXTS), atol=1e-5)


def test_dimensions_may_be_cut(folder: Path, opened: Open) -> None:
    embedder = opened(folder, dimensions=8)
    assert embedder.dimensions == 8
    wanted = reference(folder, truncate_dim=8).encode(TEXTS)
    np.testing.assert_allclose(embedder.embed(TEXTS), wanted, atol=1e-5)
    with pytest.raises(SettingsError, match="makes 32 dimensions, fewer than dimensions=64"):
        opened(folder, dimensions=64).embed(["text"])


def test_dimensions_come_from_the_model_when_no_file_says_them(
    folder: Path, tmp_path: Path, opened: Open
) -> None:
    other = shutil.copytree(folder, tmp_path / "other")
    pooling = other / "1_Pooling" / "config.json"
    pooling.write_text(pooling.read_text().replace('"embedding_dimension"', '"whatever"'))
    if (other / "modules.json").exists():
        (other / "modules.json").unlink()  # sentence-transformers then pools by the mean
    assert opened(other).dimensions == WIDTH


@pytest.mark.parametrize("precision", ["half", "bfloat16"])
def test_less_precision_makes_nearly_the_same_vectors(
    folder: Path, opened: Open, precision: str
) -> None:
    made = opened(folder, precision=precision).embed(TEXTS[:20])
    assert made.dtype == np.float32
    wanted = opened(folder).embed(TEXTS[:20])
    assert not np.array_equal(made, wanted)
    assert np.einsum("ij,ij->i", made, wanted).min() > 0.99


def test_a_prompt_that_is_left_out_of_pooling_is_left_to_sentence_transformers(
    tmp_path: Path, opened: Open
) -> None:
    folder = save_small_model(
        tmp_path / "instructor", prompts={"document": "this is: "}, include_prompt=False
    )
    embedder = opened(folder)
    made = embedder.embed(TEXTS[:10])
    assert isinstance(inside(embedder).loaded.replicas[0], TextReplica)
    np.testing.assert_allclose(made, reference(folder).encode_document(TEXTS[:10]), atol=1e-5)


def test_a_model_that_tokenises_in_its_own_way_is_left_to_sentence_transformers(
    folder: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = replica.Tokenizer.__call__
    monkeypatch.setattr(
        replica.Tokenizer, "__call__", lambda self, texts, prompt: real(self, texts, prompt + "x")
    )
    embedder = opened(folder)
    np.testing.assert_allclose(
        embedder.embed(TEXTS[:20]), reference(folder).encode(TEXTS[:20]), atol=1e-5
    )
    assert isinstance(inside(embedder).loaded.replicas[0], TextReplica)


def test_several_devices_make_the_vectors_of_one(folder: Path, opened: Open) -> None:
    embedder = opened(folder, device="cpu, cpu:0")
    np.testing.assert_allclose(embedder.embed(TEXTS), opened(folder).embed(TEXTS), atol=1e-5)
    assert [r.device for r in inside(embedder).loaded.replicas] == ["cpu", "cpu:0"]


def test_running_out_of_memory_halves_the_batch_and_is_remembered(
    folder: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    refused: list[int] = []
    real = TokenReplica.begin

    def begin(self: TokenReplica, texts: Any) -> Callable[[], Any]:
        with replica._out_of_memory():
            if padded(texts) > 600:
                refused.append(padded(texts))
                raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, texts)

    monkeypatch.setattr(TokenReplica, "begin", begin)
    embedder = opened(folder, batch_tokens=4000)
    made = embedder.embed(TEXTS)
    assert refused
    count = len(refused)
    np.testing.assert_allclose(embedder.embed(TEXTS), made, atol=1e-5)
    assert len(refused) == count, "batches that do not fit were tried again"
    np.testing.assert_allclose(made, reference(folder).encode(TEXTS), atol=1e-5)


def test_the_allocators_of_torch_are_understood() -> None:
    import torch

    for error in (
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"),
    ):
        with pytest.raises(OutOfMemory), replica._out_of_memory():
            raise error
    with pytest.raises(RuntimeError, match="assert"), replica._out_of_memory():
        raise RuntimeError("CUDA error: device-side assert triggered")


def test_padding_may_be_on_the_left() -> None:
    made = features([[5, 6, 7], [8]], Padding(token=9, left=True, types=True))
    assert made["input_ids"].tolist() == [[5, 6, 7], [9, 9, 8]]
    assert made["attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]
    assert made["token_type_ids"].tolist() == [[0, 0, 0], [0, 0, 0]]


def test_shapes_of_batches_recur_where_they_are_on_a_grid() -> None:
    padding = Padding(token=9, left=False, types=False)
    for texts, tokens, shape in ((1, 3, (1, 8)), (32, 8, (32, 8)), (33, 9, (64, 16))):
        made = features([[5] * tokens] * texts, padding, FEW_SHAPES)
        assert made["input_ids"].shape == made["attention_mask"].shape == shape
        assert made["attention_mask"].sum() == texts * tokens + shape[0] - texts
        assert (made["input_ids"] == 5).sum() == texts * tokens


def test_a_grid_does_not_change_vectors(folder: Path, opened: Open) -> None:
    embedder = opened(folder)
    model = inside(embedder)
    wanted = embedder.embed(TEXTS)
    model.loaded = dataclasses.replace(model.loaded, grid=FEW_SHAPES)
    for each in model.loaded.replicas:
        each._grid = FEW_SHAPES
    np.testing.assert_allclose(embedder.embed(TEXTS), wanted, atol=1e-5)


def test_batches_have_any_shape_on_a_processor(folder: Path, opened: Open) -> None:
    assert inside(opened(folder)).loaded.grid == FREE


def test_attention_that_is_planned_for_each_shape_waits_until_a_shape_recurs(
    folder: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    loaded = inside(opened(folder)).loaded.replicas[0]
    assert loaded._may_plan == torch.backends.cuda.cudnn_sdp_enabled()
    monkeypatch.setattr(loaded, "_is_cuda", True)

    def used(*shape: int) -> bool:
        with loaded._attention({"input_ids": np.zeros(shape)}):
            return bool(torch.backends.cuda.cudnn_sdp_enabled())

    assert [used(32, 8) for _ in range(9)] == [False] * 8 + [True]
    assert not used(64, 8)
    assert torch.backends.cuda.cudnn_sdp_enabled()
    monkeypatch.setattr(loaded, "_may_plan", False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    assert not used(32, 8), "who uses torch in the same process has switched it off"
    torch.backends.cuda.enable_cudnn_sdp(True)


def test_a_device_that_is_not_there_is_told(folder: Path, opened: Open) -> None:
    with pytest.raises(SettingsError, match="st_device='nonsense:0' cannot be used"):
        opened(folder, device="nonsense:0").embed(["text"])


def test_a_folder_that_cannot_be_loaded_is_told(folder: Path, tmp_path: Path, opened: Open) -> None:
    other = shutil.copytree(folder, tmp_path / "broken")
    for weights in other.glob("*.safetensors"):
        weights.write_bytes(b"rubbish")
    with pytest.raises(SettingsError, match="broken cannot be loaded"):
        opened(other).embed(["text"])


def test_a_model_of_the_hub_is_used_from_this_machines_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Open
) -> None:
    cache = tmp_path / "hub"
    snapshot = cache / "models--some--model" / "snapshots" / "0123"
    shutil.copytree(folder, snapshot)
    (cache / "models--some--model" / "refs").mkdir()
    (cache / "models--some--model" / "refs" / "main").write_text("0123")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(cache))
    embedder = opened("some/model")
    assert (embedder.model, embedder.dimensions, embedder.window) == ("some/model", WIDTH, 128)
    shutil.rmtree(cache / "models--some--model" / "refs")
    commit = "0123456789" * 4
    snapshot.rename(snapshot.with_name(commit))
    assert opened(f"some/model@{commit}").dimensions == WIDTH
    with pytest.raises(ProviderUnavailable, match=r"some/model cannot be read"):
        opened("some/model@" + "f" * 40)


def test_a_model_that_cannot_be_fetched_is_told(opened: Open) -> None:
    with pytest.raises(ProviderUnavailable, match=r"no-such/model cannot be read"):
        opened("no-such/model")


def test_texts_of_a_worker_and_queries_use_it(folder: Path, tmp_path: Path) -> None:
    with evervec.open(tmp_path / "a.db", embedder=f"st:{folder}", st_device="cpu") as ev:
        ev.add("note", "all about apples", id="1")
        ev.add("note", "all about pears", id="2")
        assert ev.process_all().succeeded == 2
        assert ev.search("all about pears", mode="semantic")[0].id == "2"
        assert ev.verify().complete


def test_loading_prints_nothing(folder: Path) -> None:
    program = (
        "from evervec.embedders.st import StEmbedder\n"
        f"StEmbedder({str(folder)!r}, device='cpu').embed(['text'])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], timeout=120, check=True, capture_output=True, text=True
    )
    assert (ended.stdout, ended.stderr) == ("", "")


def test_a_process_may_end_in_the_middle_of_a_call(folder: Path) -> None:
    program = f"""
import threading
from evervec.embedders import model_loader
from evervec.embedders.st import StEmbedder

embedder = StEmbedder({str(folder)!r}, device="cpu")
embedder.embed(["text"])
threading.Thread(target=embedder.embed, args=(["word " * 200] * 640,), daemon=True).start()
while not model_loader._inside:
    pass
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=120, check=False)
    assert ended.returncode == 0


def test_a_caller_with_many_texts_does_not_fill_the_memory(
    folder: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokenising goes ahead of the device by a few batches, not by all."""
    embedder = opened(folder, batch_tokens=64)
    lanes = inside(embedder).lanes
    most = 0
    real = lanes.submit

    def submit(texts: Any, **options: Any) -> Any:
        nonlocal most
        most = max(most, len(lanes._waiting))
        return real(texts, **options)

    monkeypatch.setattr(lanes, "submit", submit)
    embedder.embed(["some words"] * 3000)
    assert most <= lanes.room


def test_threads_share_one_model(folder: Path, opened: Open) -> None:
    embedder = opened(folder)
    wanted = embedder.embed(TEXTS[:50])
    made: list[Any] = []
    threads = [
        threading.Thread(target=lambda: made.append(embedder.embed(TEXTS[:50]))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(made) == 4
    for rows in made:
        np.testing.assert_allclose(rows, wanted, atol=1e-5)
