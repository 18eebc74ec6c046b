"""Ollama: many texts at once, one by one with old servers, cut at a word, and found where it is."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evervec import Evervec, InvalidInput, ProviderUnavailable, RateLimited, SettingsError
from evervec.embedders.base import BadAnswer, embed, embed_query
from evervec.embedders.http import ProviderFault
from evervec.embedders.ollama import OllamaEmbedder, address, answers, cut
from providers.conftest import BREAKS, patience
from support.processes import until
from support.provider import EVERY_CALL, EVERY_TEXT, Behaviour, ProviderServer, vector, vectors
from support.world import KIND, add_all, job_of

MXBAI = "mxbai-embed-large"
TEXTS = ["a first text", "日本語のテキスト", "a third one", "a fourth", "a fifth", "a sixth"]

Make = Callable[..., OllamaEmbedder]
Open = Callable[..., Evervec]


def paths(server: ProviderServer) -> list[tuple[str, int]]:
    return [(call.path, call.inputs) for call in server.calls()]


# ---- what is asked, and what comes back


def test_the_default_is_mxbai_with_1024_numbers(ollama_at: Make, server: ProviderServer) -> None:
    embedder = ollama_at()
    assert (embedder.name, embedder.model, embedder.dimensions) == ("ollama", MXBAI, 1024)
    assert server.seen().calls == 0
    answer = embedder.ask(TEXTS)
    assert np.array_equal(answer.vectors, vectors(TEXTS, 1024))
    assert answer.tokens == server.seen().tokens > 0
    assert paths(server) == [("/api/embed", 6)]


@pytest.mark.parametrize(("asked", "got"), [(64, 64), (1024, 1024), (0, 1024)])
def test_dimensions_are_asked_for_if_they_were_given(ollama_at: Make, asked: int, got: int) -> None:
    embedder = ollama_at(dimensions=asked)
    assert embedder.embed(TEXTS).shape == (6, embedder.dimensions) == (6, got)


def test_the_dimensions_of_an_unknown_model_are_asked_from_the_server(
    ollama_at: Make, server: ProviderServer
) -> None:
    server.behave(ollama_models={"my-own:v2": 12})
    assert ollama_at("my-own:v2").dimensions == 12
    with pytest.raises(SettingsError, match=r"'gone' .* `ollama pull gone`.* set dimensions="):
        ollama_at("gone")
    server.behave(down=True)
    with pytest.raises(SettingsError, match=r"'my-own:v2' .* set dimensions="):
        ollama_at("my-own:v2")


def test_a_known_model_may_have_a_tag(ollama_at: Make, server: ProviderServer) -> None:
    embedder = ollama_at(f"{MXBAI}:latest")
    assert (embedder.dimensions, server.seen().calls) == (1024, 0)
    assert len(embedder.embed(TEXTS)) == 6


def test_batches_have_64_texts_or_what_is_set(opened: Open, server: ProviderServer) -> None:
    ev = opened("ollama")
    add_all(ev, KIND, *(f"text {n}" for n in range(150)))
    assert ev.process_all().succeeded == 150
    assert sorted(call.inputs for call in server.calls()) == [50, 50, 50]
    assert opened("ollama", provider_batch=7).embedder.max_batch == 7


# ---- old servers


def test_a_server_that_takes_no_arrays_gets_single_calls_for_good(
    ollama_at: Make, server: ProviderServer
) -> None:
    server.behave(arrays=False)
    embedder = ollama_at()
    assert np.array_equal(embedder.ask(TEXTS).vectors, vectors(TEXTS, 1024))
    assert paths(server) == [("/api/embed", 0), *[("/api/embed", 1)] * 6]
    server.forget()
    answer = embedder.ask(TEXTS)
    assert np.array_equal(answer.vectors, vectors(TEXTS, 1024))
    assert answer.tokens == server.seen().tokens
    assert paths(server) == [("/api/embed", 1)] * 6  # it is not tried again


def test_no_more_than_four_single_calls_are_under_way_whoever_asks(
    ollama_at: Make, server: ProviderServer
) -> None:
    server.behave(arrays=False)
    embedder = ollama_at()
    embedder.embed(TEXTS)  # from now on it asks singly
    server.forget()
    server.behave(slots=0)
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(embedder.embed, TEXTS) for _ in range(3)]
        until(lambda: server.seen().in_flight == 4)
        server.behave(slots=None)
        for call in calls:
            assert np.array_equal(call.result(60), vectors(TEXTS, 1024))
    assert server.seen().peak == 4


def test_the_oldest_servers_have_only_the_older_form(
    ollama_at: Make, server: ProviderServer
) -> None:
    server.behave(missing=["/api/embed"])
    embedder = ollama_at()
    answer = embed(embedder, TEXTS)
    assert answer.vectors == pytest.approx(vectors(TEXTS, 1024), abs=1e-6)
    assert paths(server) == [("/api/embed", 0), *[("/api/embeddings", 1)] * 6]
    server.forget()
    assert embed_query(embedder, "question") == pytest.approx(vector("question", 1024), abs=1e-6)
    assert paths(server) == [("/api/embeddings", 1)]


def test_a_question_may_be_what_finds_out_that_a_server_is_that_old(
    ollama_at: Make, server: ProviderServer
) -> None:
    server.behave(missing=["/api/embed"])
    embedder = ollama_at()
    assert embed_query(embedder, "question") == pytest.approx(vector("question", 1024), abs=1e-6)
    assert embed(embedder, TEXTS).errors == {}
    assert server.seen().paths == {"/api/embed": 1, "/api/embeddings": 7}


def test_calls_that_find_it_out_at_the_same_time_all_come_through(
    ollama_at: Make, server: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.behave(missing=["/api/embed"])
    embedder = ollama_at()
    together, post = threading.Barrier(2), embedder._post
    answered: list[str] = []

    def held(given: Any, *more: Any) -> Any:
        reply = post(given, *more)
        if len(answered) < 2 and isinstance(given, list):
            answered.append("")
            together.wait(60)  # both were told so before either one can act on it
        return reply

    monkeypatch.setattr(embedder, "_post", held)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(embedder.embed, TEXTS) for _ in range(2)]
        assert [len(call.result(60)) for call in calls] == [6, 6]


@pytest.mark.parametrize("behaviour", [{"arrays": False}, {"missing": ["/api/embed"]}])
@pytest.mark.parametrize("fault", ["refuse", "fail", "hang", "nan", "wrong_dimensions"])
def test_with_old_servers_too_a_text_that_breaks_it_is_found_alone(
    ollama_at: Make, server: ProviderServer, behaviour: dict[str, Any], fault: str
) -> None:
    server.behave(**behaviour, **{fault: "poison"})
    texts = [*TEXTS, "some poison"]
    answer = embed(ollama_at(seconds=patience({fault: "poison"})), texts)
    assert list(answer.errors) == [6]
    assert answer.vectors[:6] == pytest.approx(vectors(TEXTS, 1024), abs=1e-6)


# ---- whose fault it is


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        pytest.param({"down": True}, "Ollama is unreachable at http://127.0.0.1", id="refused"),
        pytest.param(
            {"ollama_models": {}},
            f"'{MXBAI}' not found: download it with `ollama pull {MXBAI}`",
            id="model",
        ),
        pytest.param(
            {"ollama_models": {}, "missing": ["/api/embed"]}, f"`ollama pull {MXBAI}`", id="old"
        ),
        pytest.param({"refuse": EVERY_TEXT}, "input length exceeds", id="400 for all"),
        pytest.param(
            {"refuse": EVERY_TEXT, "arrays": False}, "input length exceeds", id="400 for each"
        ),
        pytest.param({"fail": EVERY_TEXT}, "500: do embedding request: .*EOF", id="500"),
        pytest.param({"proxy": EVERY_CALL}, "502: <html>", id="proxy"),
        pytest.param({"proxy": EVERY_CALL, "proxy_status": 200}, "not JSON: <html>", id="page"),
        pytest.param({"hang": EVERY_TEXT}, r"did not respond within 0\.6 s", id="hang"),
        pytest.param({"truncated": EVERY_TEXT}, "not JSON", id="truncated"),
        pytest.param({"cut": EVERY_TEXT}, "the connection to .* failed", id="cut"),
        pytest.param({"wrong_count": EVERY_TEXT}, "an array of shape 0", id="count"),
        pytest.param({"wrong_dimensions": EVERY_TEXT}, "512 dimensions", id="dimensions"),
        pytest.param({"nan": EVERY_TEXT}, "a known good text", id="NaN"),
    ],
)
def test_what_no_text_can_help_is_an_outage(
    ollama_at: Make, server: ProviderServer, behaviour: dict[str, Any], words: str
) -> None:
    embedder = ollama_at(seconds=0.6)
    server.behave(**behaviour)
    with pytest.raises(ProviderUnavailable, match=words):
        embed(embedder, TEXTS)


@pytest.mark.parametrize(
    ("behaviour", "error", "words"),
    [
        *BREAKS,
        pytest.param({"refuse": "poison"}, InvalidInput, "input length exceeds", id="400"),
        pytest.param({"fail": "poison"}, ProviderFault, "500: do embedding request", id="500"),
        pytest.param({"wrong_count": "poison"}, BadAnswer, "an array of shape 0", id="count"),
        pytest.param({"wrong_dimensions": "poison"}, BadAnswer, "512 dimensions", id="dimensions"),
    ],
)
def test_a_text_that_breaks_it_is_found_alone(
    ollama_at: Make,
    server: ProviderServer,
    behaviour: dict[str, Any],
    error: type[Exception],
    words: str,
) -> None:
    server.behave(**behaviour)
    answer = embed(ollama_at(seconds=patience(behaviour)), [*TEXTS, "some poison"])
    assert list(answer.errors) == [6]
    with pytest.raises(error, match=words):
        raise answer.errors[6]
    assert answer.vectors[:6] == pytest.approx(vectors(TEXTS, 1024), abs=1e-6)


def test_a_busy_server_wants_a_pause(ollama_at: Make, server: ProviderServer) -> None:
    server.behave(slots=0, full_status=503)
    with pytest.raises(RateLimited, match="Ollama is busy: server busy, please try again") as told:
        embed(ollama_at(), TEXTS)
    assert told.value.retry_after is None
    server.behave(arrays=False)
    with pytest.raises(RateLimited):
        embed(ollama_at(), TEXTS)


def test_a_single_call_that_is_refused_names_its_text(
    ollama_at: Make, server: ProviderServer
) -> None:
    server.behave(arrays=False, refuse="poison")
    with pytest.raises(InvalidInput, match="input length exceeds") as told:
        ollama_at().ask(["good", "some poison", "good", "more poison"])
    assert told.value.positions == (1, 3)


# ---- long texts


@pytest.mark.parametrize(
    ("text", "characters", "sent"),
    [
        ("short", 16, "short"),
        ("exactly 16 chars", 16, "exactly 16 chars"),
        ("the last word is cut", 16, "the last word is"),
        ("the last words are cut", 16, "the last words"),
        ("lines\nend words too", 16, "lines\nend words"),
        ("onewordwithoutanyspace", 16, "onewordwithoutan"),
        ("a " + "w" * 30, 16, "a wwwwwwwwwwwwww"),  # a word as long as half of it is cut
        ("語" * 20, 16, "語" * 16),
    ],
)
def test_a_text_is_cut_at_a_word(text: str, characters: int, sent: str) -> None:
    assert cut(text, characters) == sent


def test_a_long_text_is_sent_up_to_2000_characters(ollama_at: Make, server: ProviderServer) -> None:
    text = " ".join(f"word{n}" for n in range(700))
    ollama_at().embed([text])
    (sent,) = server.calls()[0].texts or ()
    assert 1990 < len(sent) <= 2000
    assert text.startswith(f"{sent} ")


@pytest.mark.parametrize("title", [None, "A title", "A title of many words. " * 70])
def test_a_long_record_is_sent_in_chunks_that_fit_with_nothing_left_out(
    opened: Open, server: ProviderServer, title: str | None
) -> None:
    ev = opened("ollama", chunk_tokens=2000)
    words = [f"word{n}" for n in range(1500)]
    ev.add(KIND, " ".join(words), id="1", title=title)
    ev.process_all()
    sent = [text for call in server.calls() for text in call.texts or ()]
    assert max(map(len, sent)) <= 2000
    assert set(words) <= {word for text in sent for word in text.split()}
    assert ev.verify().clean


def test_how_much_is_sent_is_a_setting(opened: Open, server: ProviderServer) -> None:
    ev = opened("ollama", ollama_chars=40)
    ev.add(KIND, "a text of many words, of which not all are sent at once", id="1")
    ev.process_all()
    sent = [text for call in server.calls() for text in call.texts or ()]
    assert max(map(len, sent)) <= 40
    assert " ".join(sent) == "a text of many words, of which not all are sent at once"
    server.forget()
    ev.search("a question of many words, of which not all are sent to the server")
    assert server.calls()[0].texts == ("a question of many words, of which not",)


# ---- where it is


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        (":8080", "http://127.0.0.1:8080"),
        ("gpu-box", "http://gpu-box:11434"),
        ("gpu-box:8080", "http://gpu-box:8080"),
        ("10.1.2.3", "http://10.1.2.3:11434"),
        ("http://gpu-box", "http://gpu-box"),
        ("http://gpu-box:8080/", "http://gpu-box:8080/"),
        ("https://gpu-box/ollama", "https://gpu-box/ollama"),
        ("http://0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("[::1]", "http://[::1]:11434"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("gpu-box/ollama", "http://gpu-box:11434/ollama"),
        ("gpu-box:8080/ollama", "http://gpu-box:8080/ollama"),
        (" gpu-box:8080 ", "http://gpu-box:8080"),
    ],
)
def test_a_host_is_read_as_ollama_reads_it(host: str, url: str) -> None:
    assert address(host) == url


def test_ollama_host_says_where_it_is(
    opened: Open, server: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for host in (f"127.0.0.1:{server.port}", f"0.0.0.0:{server.port}", f":{server.port}"):
        monkeypatch.setenv("OLLAMA_HOST", host)
        assert opened("ollama", ollama_url="").provider.trouble() is None
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    assert opened("ollama").provider.trouble() is None  # what is set wins


def test_a_server_is_known_by_its_list_of_models(server: ProviderServer) -> None:
    assert answers(server.url) is None
    assert server.seen().paths == {"/api/tags": 1}
    server.behave(proxy=EVERY_CALL, proxy_status=200)
    assert "is not Ollama (status 200)" in (answers(server.url) or "")
    server.behaviour = Behaviour(missing=("/api/tags",))
    assert "is not Ollama (status 404)" in (answers(server.url) or "")
    server.behaviour = Behaviour(down=True)
    assert "is unreachable" in (answers(server.url) or "")


def test_a_server_that_does_not_answer_within_two_seconds_is_none(
    server: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evervec.embedders.ollama._DETECTION_SECONDS", 0.1)
    server.behave(hang=EVERY_CALL)
    assert answers(server.url) == "Ollama did not respond within 0.1 s"


@pytest.mark.parametrize("host", ["http://[bad", "http://a b", "\x00"])
def test_what_cannot_be_an_address_is_no_server(host: str) -> None:
    assert answers(host)


# ---- through a store


def test_a_batch_with_a_bad_text_through_a_store(
    opened: Open, server: ProviderServer, tmp_path: Path
) -> None:
    server.behave(refuse="poison")
    ev = opened("ollama")
    add_all(ev, KIND, *TEXTS, "some poison")
    result = ev.process_all()
    assert (result.succeeded, result.failed) == (6, 1)
    assert "input length exceeds the context length" in (job_of(ev, "6").error or "")
    assert ev.queue.stats().spent_today[0].tokens == server.seen().tokens
