"""Small models with random weights, saved as sentence-transformers saves them."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")

from evervec.embedders.st import StEmbedder
from support.small_models import save_small_model

Open = Callable[..., StEmbedder]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_model(tmp_path_factory.mktemp("model") / "small-bert")


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens embedders, and closes them after the test."""
    made: list[StEmbedder] = []

    def make(folder: Path | str, **options: object) -> StEmbedder:
        made.append(StEmbedder(str(folder), **{"device": "cpu", **options}))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for embedder in made:
        embedder.close()
