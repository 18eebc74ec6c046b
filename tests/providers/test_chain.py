"""Which embedder `auto` takes: the first that is there, and for ever after the one that serves."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import evervec
from evervec import Evervec, SettingsError
from support.provider import EVERY_CALL, ProviderServer
from support.world import KIND, ScriptedEmbedder, job_of

Open = Callable[..., Evervec]
NOWHERE = "http://127.0.0.1:1"
AWAY = {"ollama_url": NOWHERE, "openai_key": "", "dimensions": 0}


@pytest.fixture
def no_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the local model were not installed."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said about the choice."""
    return [r.getMessage() for r in caplog.records if "embedder" in r.getMessage()]


# ---- a new store


def test_an_ollama_that_answers_comes_first(
    opened: Open, server: ProviderServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "evervec"):
        ev = opened("auto", dimensions=0)
    assert (ev.embedder.name, ev.embedder.model) == ("ollama", "mxbai-embed-large")
    assert server.seen().paths == {"/api/tags": 1}
    assert ev.embedder_because == "an Ollama server is running"
    assert lines(caplog) == ["embedder: ollama mxbai-embed-large (an Ollama server is running)"]


def test_then_openai_if_there_is_a_key(
    opened: Open, server: ProviderServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "evervec"):
        ev = opened("auto", ollama_url=NOWHERE, dimensions=0)
    assert (ev.embedder.name, ev.embedder.dimensions) == ("openai", 1024)
    assert server.seen().calls == 0  # whether it can be reached is for later
    (line,) = lines(caplog)
    assert line.startswith("embedder: openai text-embedding-3-small (an OpenAI key is set")
    assert ev.embedder_because in line


@pytest.mark.parametrize("behaviour", [{"hang": EVERY_CALL}, {"proxy": EVERY_CALL}, {"down": True}])
def test_an_ollama_that_does_not_answer_as_one_is_none(
    opened: Open,
    server: ProviderServer,
    monkeypatch: pytest.MonkeyPatch,
    behaviour: dict[str, object],
) -> None:
    monkeypatch.setattr("evervec.embedders.ollama._DETECTION_SECONDS", 0.1)
    server.behave(**behaviour)
    assert opened("auto").embedder.name == "openai"


@pytest.mark.parametrize("host", ["http://[bad", "\x7f", "a b"])
def test_an_address_that_is_none_is_no_ollama(opened: Open, host: str) -> None:
    assert opened("auto", ollama_url=host).embedder.name == "openai"


def test_then_the_local_model_if_it_is_installed(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "evervec"):
        ev = opened("auto", **AWAY)
    assert ev.embedder.name == "local"
    (line,) = lines(caplog)
    assert "no Ollama server is running, and no OpenAI key is set" in line


@pytest.mark.usefixtures("no_local")
def test_else_none_and_every_reason_is_told(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "evervec"):
        ev = opened("auto", **AWAY)
    assert (ev.embedder.name, ev.embedder.dimensions) == ("noop", 0)
    for reason in (NOWHERE, "OPENAI_API_KEY", "pip install 'evervec[local]'"):
        assert reason in ev.embedder_because
    (line,) = lines(caplog)
    assert line.startswith("no embedder: records wait, and searches use text only")
    assert ev.embedder_because in line
    ev.add(KIND, "text", id="1")
    assert ev.process_all().processed == 0
    assert ev.search("text").via == "text"


@pytest.mark.usefixtures("no_local")
def test_a_store_that_has_waited_takes_the_first_that_comes(
    opened: Open, server: ProviderServer
) -> None:
    with opened("auto", **AWAY) as ev:
        ev.add(KIND, "text", id="1")
        assert ev.process_all().processed == 0
    ev = opened("auto", dimensions=0)
    assert ev.embedder.name == "ollama"
    assert ev.process_all().succeeded == 1


# ---- by name


def test_the_environment_may_name_it(
    opened: Open, server: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERVEC_EMBEDDER", "openai:text-embedding-3-large")
    ev = opened("auto")
    assert (ev.embedder.name, ev.embedder.model) == ("openai", "text-embedding-3-large")
    assert opened("ollama", store="memory:").embedder.name == "ollama"  # what is given wins
    monkeypatch.setenv("EVERVEC_EMBEDDER", "auto")
    assert opened("auto", store="memory:", dimensions=0).embedder.name == "ollama"
    monkeypatch.setenv("EVERVEC_EMBEDDER", "")
    assert opened("auto", store="memory:", dimensions=0).embedder.name == "ollama"


def test_what_is_named_is_taken_and_nothing_is_looked_for(
    opened: Open, server: ProviderServer
) -> None:
    for name, model in (
        ("ollama", "mxbai-embed-large"),
        ("ollama:all-minilm:latest", "all-minilm:latest"),
        ("openai", "text-embedding-3-small"),
        ("openai:text-embedding-ada-002", "text-embedding-ada-002"),
        ("noop", ""),
    ):
        ev = opened(name, store="memory:", dimensions=0)
        assert (ev.embedder.name, ev.embedder.model) == (name.partition(":")[0], model)
        assert ev.embedder_because == "it was given by name"
    server.behave(down=True)
    assert opened("ollama", store="memory:").embedder.name == "ollama"
    server.behave(down=False)
    assert server.seen().calls == 0


def test_an_embedder_of_the_program_is_taken_as_it_is(opened: Open, server: ProviderServer) -> None:
    ev = opened(ScriptedEmbedder())
    assert ev.embedder_because == "it was given by the program"
    assert server.seen().calls == 0


def test_a_name_that_nobody_knows_is_refused(opened: Open) -> None:
    with pytest.raises(
        SettingsError, match=r"unknown embedder 'cohere'; choose one of auto, ollama, openai"
    ):
        opened("cohere")


# ---- a store that serves vectors


def test_the_provider_of_a_store_stays_even_while_it_is_away(
    opened: Open, server: ProviderServer, caplog: pytest.LogCaptureFixture
) -> None:
    """There is a key, and the local model: neither takes its place."""
    with opened("ollama", dimensions=0) as ev:
        ev.add(KIND, "an apple", id="1")
        ev.process_all()
    server.behave(missing=["/api/embed", "/api/embeddings", "/api/tags"])
    server.forget()
    caplog.clear()
    with caplog.at_level(logging.INFO, "evervec"):
        ev = opened("auto", dimensions=0, backoff_seconds=0.01)
    assert (ev.embedder.name, ev.embedder.dimensions) == ("ollama", 1024)
    assert lines(caplog) == ["embedder: ollama mxbai-embed-large (the store serves its vectors)"]
    assert server.seen().calls == 0
    ev.add(KIND, "a pear", id="2")
    assert ev.process_all().processed == 0
    assert job_of(ev, "2").attempts == 0
    for mode in ("hybrid", "semantic"):
        assert ev.search("apple", mode=mode).via == "text"
    assert "/v1/embeddings" not in server.seen().paths
    assert {version.provider for version in ev.versions()} == {"ollama"}
    server.behave(missing=[])
    ticket = job_of(ev, "2")
    with ev.worker():
        ev.wait(evervec.Ticket(KIND, "2", ticket.job_id, ticket.seq))
    assert ev.search("pear").via == "hybrid"


def test_a_store_of_openai_without_its_key_waits(
    opened: Open, server: ProviderServer, caplog: pytest.LogCaptureFixture
) -> None:
    with opened("openai", dimensions=0) as ev:
        ev.add(KIND, "an apple", id="1")
        ev.process_all()
    server.forget()
    with caplog.at_level(logging.INFO, "evervec"):
        ev = opened("auto", openai_url="", openai_key="")
    assert ev.embedder.name == "noop"
    assert "OPENAI_API_KEY" in ev.embedder_because
    assert "OPENAI_API_KEY" in lines(caplog)[-1]
    ev.add(KIND, "a pear", id="2")
    assert ev.process_all().processed == 0
    assert [hit.id for hit in ev.search("pear")] == ["2"]
    assert server.seen().calls == 0
    assert [v.provider for v in ev.versions()] == ["openai"]


def test_the_size_of_its_vectors_stays_too(opened: Open, server: ProviderServer) -> None:
    server.behave(openai_models={"my-own": 12, "text-embedding-3-small": 1536})
    for store, name, dimensions in (("a.db", "openai", 64), ("b.db", "openai:my-own", 0)):
        path = Path(opened("noop").store.url).parent / store
        with opened(name, store=path, dimensions=dimensions) as ev:
            ev.add(KIND, "text", id="1")
            ev.process_all()
            size = ev.embedder.dimensions
        server.forget()
        for given in (0, 256):
            again = opened("auto", store=path, dimensions=given)
            assert again.embedder.dimensions == size
        assert server.seen().calls == 0


def test_a_store_of_a_programs_own_embedder_waits_for_that_program(opened: Open) -> None:
    embedder = ScriptedEmbedder()
    embedder.name = "its-own"
    with opened(embedder) as ev:
        ev.add(KIND, "text", id="1")
        ev.process_all()
    ev = opened("auto")
    assert ev.embedder.name == "noop"
    assert "an embedder that only the application can provide" in ev.embedder_because


# ---- doctor


def doctor(store: Path, **environment: str) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("EVERVEC_", "OPENAI_"))}
    done = subprocess.run(
        [sys.executable, "-m", "evervec", "--store", str(store), "doctor"],
        env={**clean, "COLUMNS": "300", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in done.stderr
    return " ".join((done.stdout + done.stderr).split())


def test_doctor_says_which_and_why(server: ProviderServer, tmp_path: Path) -> None:
    evervec.open(tmp_path / "new.db", embedder="noop").close()
    said = doctor(tmp_path / "new.db", OLLAMA_HOST=server.url)
    assert "mxbai-embed-large" in said
    assert "an Ollama server is running" in said


def test_doctor_says_what_is_wrong_with_a_provider(server: ProviderServer, tmp_path: Path) -> None:
    evervec.open(tmp_path / "new.db", embedder="noop").close()
    server.behave(ollama_models={})
    said = doctor(tmp_path / "new.db", OLLAMA_HOST=server.url)
    assert "download it with `ollama pull mxbai-embed-large`" in said
