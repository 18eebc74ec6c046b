"""A provider on a loopback port, and what calls it; nothing of the tester's own environment."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import evervec
from evervec import Evervec
from evervec.embedders.base import BadAnswer
from evervec.embedders.http import ProviderFault
from evervec.embedders.ollama import OllamaEmbedder
from evervec.embedders.openai import OpenAIEmbedder
from support.provider import ProviderServer

BREAKS = [
    pytest.param({"hang": "poison"}, ProviderFault, "did not respond within", id="hang"),
    pytest.param({"truncated": "poison"}, BadAnswer, "not JSON", id="truncated"),
    pytest.param({"cut": "poison"}, ProviderFault, "the connection to .* failed", id="cut"),
    pytest.param({"nan": "poison"}, BadAnswer, "zero or not finite", id="NaN"),
    pytest.param({"zero": "poison"}, BadAnswer, "zero or not finite", id="zero"),
]
"""What a text does to any provider: its behaviour, and what is said of it."""


def patience(behaviour: Mapping[str, object]) -> float:
    """How long to wait for an answer: where one never comes, little longer than any other takes on a
    busy machine."""
    return 1.0 if behaviour.keys() & {"hang", "drip"} else 60.0


ENVIRONMENT = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_HOST", "EVERVEC_EMBEDDER")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[ProviderServer]:
    with ProviderServer(keep_texts=True) as server:
        yield server


@pytest.fixture
def openai_at(server: ProviderServer) -> Iterator[Callable[..., OpenAIEmbedder]]:
    """Makes embedders that call the server; `dimensions` are few, for speed."""
    with ExitStack() as made:

        def make(model: str = "", **given: Any) -> OpenAIEmbedder:
            options = {"url": server.openai_url, "key": "sk-right", "dimensions": 8, **given}
            embedder = OpenAIEmbedder(model, **options)
            made.callback(embedder.close)
            return embedder

        yield make


@pytest.fixture
def ollama_at(server: ProviderServer) -> Iterator[Callable[..., OllamaEmbedder]]:
    with ExitStack() as made:

        def make(model: str = "", **given: Any) -> OllamaEmbedder:
            embedder = OllamaEmbedder(model, **{"url": server.url, **given})
            made.callback(embedder.close)
            return embedder

        yield make


@pytest.fixture
def opened(server: ProviderServer, tmp_path: Path) -> Iterator[Callable[..., Evervec]]:
    """Opens a store as a program would, by the provider's name."""
    with ExitStack() as made:

        def open(embedder: Any = "openai", store: object = None, **given: Any) -> Evervec:
            settings = {
                "openai_url": server.openai_url, "openai_key": "sk-right",
                "ollama_url": server.url, "dimensions": 8, **given,
            }  # fmt: skip
            ev = evervec.open(store or tmp_path / "notes.db", embedder=embedder, **settings)
            made.callback(getattr(ev.embedder, "close", int))
            made.callback(ev.close)
            return ev

        yield open
