from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import evervec
from evervec import Evervec
from support import postgres
from support.world import ScriptedEmbedder


@pytest.fixture
def url() -> str:
    """A database of the application's own; evervec comes later."""
    return postgres.DATABASES.create()


@pytest.fixture
def app(url: str) -> Iterator[psycopg.Connection[Any]]:
    """The application's own connection; it knows nothing of evervec."""
    with psycopg.connect(url, autocommit=True) as conn:
        yield conn


@pytest.fixture
def ev(url: str) -> Iterator[Evervec]:
    with evervec.open(url, embedder=ScriptedEmbedder()) as opened:
        yield opened
