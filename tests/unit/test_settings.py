"""Settings: one name each, from `open` or the environment, refused when they cannot be."""

import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import evervec
from evervec import EvervecError, Settings, SettingsError
from evervec.embedders.hashing import HashingEmbedder
from support.world import KIND, ScriptedEmbedder

NUMBERS = [f for f in fields(Settings) if f.type in ("int", "float")]


def test_the_defaults_are_the_documented_ones() -> None:
    s = Settings()
    assert (s.max_attempts, s.lease_seconds, s.batch_size, s.concurrency) == (10, 60, 256, 3)
    assert (s.backoff_seconds, s.backoff_cap_seconds, s.backoff_jitter) == (1, 300, 0.2)
    assert (s.keep_done_days, s.keep_dead_days, s.alert_failed) == (7, 7, 10)
    assert (s.wait_seconds, s.drain_seconds, s.poll_seconds) == (30, 30, 0)
    assert s.overfetch == 3


def test_every_setting_says_what_it_means() -> None:
    for f in fields(Settings):
        assert f.metadata["meaning"], f.name


def test_the_environment_sets_what_is_not_given() -> None:
    environ = {"EVERVEC_LEASE_SECONDS": "5.5", "EVERVEC_BATCH_SIZE": "7", "EVERVEC_CONCURRENCY": ""}
    loaded = Settings.load({"batch_size": 9}, environ)
    assert (loaded.lease_seconds, loaded.batch_size, loaded.concurrency) == (5.5, 9, 3)


@pytest.mark.parametrize("f", NUMBERS, ids=lambda f: f.name)
def test_every_number_can_be_set_in_the_environment(f: Any) -> None:
    value = {"int": "17", "float": "0.75"}[f.type]
    loaded = Settings.load({}, {f"EVERVEC_{f.name.upper()}": value})
    assert getattr(loaded, f.name) == float(value)


def test_an_environment_variable_that_is_no_number_is_named() -> None:
    with pytest.raises(SettingsError, match="EVERVEC_BATCH_SIZE must be a whole number"):
        Settings.load({}, {"EVERVEC_BATCH_SIZE": "many"})
    with pytest.raises(SettingsError, match="lease_seconds"):
        Settings.load({}, {"EVERVEC_LEASE_SECONDS": "nan"})


def test_an_unknown_setting_is_refused_with_a_hint() -> None:
    with pytest.raises(SettingsError, match="did you mean 'lease_seconds'"):
        evervec.open("memory:", embedder="noop", lease_second=3)
    with pytest.raises(SettingsError, match="unknown setting 'colour'"):
        evervec.open("memory:", embedder="noop", colour="red")


@pytest.mark.parametrize("f", NUMBERS, ids=lambda f: f.name)
@pytest.mark.parametrize("value", ["5", None, True, float("nan"), -1e9])
def test_values_that_cannot_be_used_are_refused_by_name(f: Any, value: Any) -> None:
    with pytest.raises(SettingsError, match=f.name):
        Settings.load({f.name: value}, {})


@pytest.mark.parametrize("name", ["lease_seconds", "poll_seconds", "busy_seconds"])
def test_times_that_must_come_cannot_be_infinite(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        Settings.load({name: float("inf")}, {})


def test_a_whole_number_is_not_a_fraction() -> None:
    with pytest.raises(SettingsError, match="batch_size"):
        Settings.load({"batch_size": 2.5}, {})


@pytest.mark.parametrize("text", ["1", "true", "Yes", "on"])
def test_a_switch_can_be_set_in_the_environment(text: str) -> None:
    assert Settings.load({}, {"EVERVEC_PGVECTOR_HALF": text}).pgvector_half
    assert not Settings.load({}, {"EVERVEC_LISTEN": "off"}).listen


@pytest.mark.parametrize("value", [1, "yes", None])
def test_a_switch_is_true_or_false(value: Any) -> None:
    with pytest.raises(SettingsError, match="listen"):
        Settings.load({"listen": value}, {})
    with pytest.raises(SettingsError, match="EVERVEC_LISTEN must be true or false"):
        Settings.load({}, {"EVERVEC_LISTEN": "maybe"})


@pytest.mark.parametrize("name", ["clock", "rng"])
def test_what_is_no_clock_or_randomness_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        Settings.load({name: 5}, {})


def test_settings_errors_are_value_errors_of_evervec() -> None:
    assert issubclass(SettingsError, ValueError)
    assert issubclass(SettingsError, evervec.EvervecError)


# what `open` takes


def test_the_store_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERVEC_STORE", str(tmp_path / "env.db"))
    monkeypatch.setenv("EVERVEC_EMBEDDER", "hashing")
    with evervec.open() as ev:
        assert ev.embedder.name == "hashing"
    assert (tmp_path / "env.db").exists()


def test_the_default_store_is_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EVERVEC_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    evervec.open(embedder="noop").close()
    assert (tmp_path / "evervec.db").exists()


def test_paths_and_urls_name_the_same_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with evervec.open(path, embedder="hashing") as ev:
        ev.add(KIND, "alpha", id="1")
    for given in (str(path), f"sqlite:///{path}"):
        with evervec.open(given, embedder="hashing") as ev:
            assert ev.get(KIND, "1") is not None


@pytest.mark.parametrize(
    ("package", "url", "extra"),
    [("duckdb", "duckdb:///x.duckdb", "duckdb"), ("psycopg", "postgresql://h/d", "postgres")],
)
def test_a_driver_that_is_missing_is_told_with_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, package: str, url: str, extra: str
) -> None:
    for name in [n for n in sys.modules if n.startswith(f"evervec.stores.{extra}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(SettingsError, match=rf"{package}: pip install 'evervec\[{extra}\]'"):
        evervec.open(url)


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite://host/x", "http://x", "redis://"])
def test_an_unknown_store_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(url)):
        evervec.open(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hunter2@host/db",
        "postgresql://ann:hun%40ter2:hunter2@host/db",
        "postgresql://host/db?user=ann&password=hunter2",
        "qdrants://host?api_key=hunter2",
    ],
)
def test_no_message_shows_the_secrets_of_a_url(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(EvervecError) as as_store:  # it is unknown, or cannot be reached
        evervec.open(url)
    with pytest.raises(SettingsError) as as_index:
        evervec.open("memory:", index=url)
    monkeypatch.setenv("EVERVEC_INDEX", url)
    with pytest.raises(SettingsError) as from_environment:
        evervec.open("memory:")
    for caught in (as_store, as_index, from_environment):
        assert "hunter2" not in str(caught.value)
        assert "host" in str(caught.value)
    assert "hunter2" not in caplog.text


def test_an_unknown_embedder_is_refused() -> None:
    with pytest.raises(SettingsError, match="unknown embedder 'magic'"):
        evervec.open("memory:", embedder="magic")


def test_an_embedder_that_lacks_something_is_refused_by_what_it_lacks() -> None:
    class Half:
        name, model, dimensions = "half", "half", 3

    with pytest.raises(SettingsError, match="max_batch"):
        evervec.open("memory:", embedder=Half())  # type: ignore[arg-type]


def test_auto_means_the_embedder_that_the_store_already_has(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with evervec.open(path) as ev:
        assert (ev.embedder.name, ev.embedder.model) == ("local", "all-MiniLM-L6-v2")
    with evervec.open(path, embedder="hashing") as ev:
        ev.add(KIND, "alpha", id="1")
        ev.process_all()
    with evervec.open(path) as ev:
        assert ev.embedder.name == "hashing"
        assert [h.id for h in ev.search("alpha", mode="semantic")] == ["1"]


def test_auto_never_turns_to_another_model_than_the_one_that_serves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store.db"
    own = ScriptedEmbedder()
    own.name = "own"
    with evervec.open(path, embedder=own) as ev:
        ev.add(KIND, "alpha", id="1")
        ev.process_all()
    with evervec.open(path) as ev:
        assert ev.embedder.name == "noop"
        hits = ev.search("alpha")
        assert ([h.id for h in hits], hits.via) == (["1"], "text")
    assert "only the application can provide" in caplog.text


def test_a_model_that_differs_from_the_serving_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with evervec.open(path, embedder="hashing") as ev:
        ev.add(KIND, "alpha", id="1")
        ev.process_all()
    with pytest.raises(evervec.VersionMismatch, match="hashing-32"):
        evervec.open(path, embedder=HashingEmbedder(32))
    with evervec.open(path, embedder="hashing") as ev:
        assert ev.verify().clean
