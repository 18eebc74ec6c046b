"""OpenAI, and what speaks as it does: batches, answers, and whose fault a failure is."""

import logging
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from evervec import Evervec, InvalidInput, ProviderUnavailable, RateLimited, Settings, SettingsError
from evervec.embedders.base import BadAnswer, embed
from evervec.embedders.http import ProviderFault, duration, limit_pause, retry_after
from evervec.embedders.openai import OpenAIEmbedder
from providers.conftest import BREAKS, patience
from support.processes import until
from support.provider import (
    EVERY_CALL,
    EVERY_TEXT,
    Behaviour,
    ProviderServer,
    count_tokens,
    vectors,
)
from support.world import KIND, add_all, job_of

SMALL = "text-embedding-3-small"
TEXTS = ["a first text", "日本語のテキスト", "a third one", "a fourth"]
KEY = "sk-very-secret-0123456789"

Make = Callable[..., OpenAIEmbedder]
Open = Callable[..., Evervec]


# ---- what is asked, and what comes back


def test_the_default_is_the_small_model_cut_to_1024(openai_at: Make) -> None:
    embedder = openai_at(dimensions=0)
    assert (embedder.name, embedder.model, embedder.dimensions) == ("openai", SMALL, 1024)
    assert np.array_equal(embedder.embed(TEXTS), vectors(TEXTS, 1024))


@pytest.mark.parametrize("behaviour", [Behaviour(), Behaviour(base64=False)])
@pytest.mark.parametrize("shuffled", [False, True])
def test_vectors_are_read_in_the_order_of_the_texts(
    openai_at: Make, server: ProviderServer, behaviour: Behaviour, shuffled: bool
) -> None:
    server.behaviour = replace(behaviour, shuffled=shuffled)
    answer = openai_at().ask(TEXTS)
    assert np.array_equal(answer.vectors, vectors(TEXTS, 8))
    assert answer.vectors.dtype == np.float32
    assert answer.tokens == sum(map(count_tokens, TEXTS)) == server.seen().tokens
    assert answer.pause == 0


def test_dimensions_are_asked_for_only_where_a_model_can_be_cut(openai_at: Make) -> None:
    assert openai_at("text-embedding-3-large", dimensions=256).embed(TEXTS).shape == (4, 256)
    ada = openai_at("text-embedding-ada-002", dimensions=0)  # which refuses to be cut
    assert ada.embed(TEXTS).shape == (4, ada.dimensions) == (4, 1536)


def test_the_dimensions_of_an_unknown_model_are_asked_from_the_server(
    openai_at: Make, server: ProviderServer
) -> None:
    server.behave(openai_models={"my-own": 12})
    assert openai_at("my-own", dimensions=0).dimensions == 12
    assert server.seen().calls == 1
    server.forget()
    assert openai_at("my-own", dimensions=12).dimensions == 12  # they are known: nobody is asked
    assert server.seen().calls == 0
    wrong = openai_at("my-own", dimensions=8)  # and not sent: the answer shows it
    with pytest.raises(ProviderUnavailable, match="12 dimensions instead of 8: check the model"):
        embed(wrong, TEXTS)


def test_an_unknown_model_of_a_server_that_is_away_needs_its_dimensions(
    openai_at: Make, server: ProviderServer
) -> None:
    server.behave(down=True)
    with pytest.raises(SettingsError, match=r"dimensions of 'my-own' .* set dimensions="):
        openai_at("my-own", dimensions=0)
    assert openai_at("my-own", dimensions=12).dimensions == 12


@pytest.mark.parametrize("path", ["/v1", "/v1/"])
def test_any_url_that_speaks_as_openai_does_is_called(
    opened: Open, server: ProviderServer, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url + path)
    ev = opened("openai", openai_url="", openai_key="")  # another server may need no key
    ev.add(KIND, "text", id="1")
    assert ev.process_all().succeeded == 1
    assert server.seen().paths == {"/v1/embeddings": 1}


def test_openai_itself_needs_a_key(opened: Open) -> None:
    with pytest.raises(SettingsError, match="OPENAI_API_KEY"):
        opened("openai", openai_url="", openai_key="")


def test_the_key_is_taken_from_the_environment_if_none_is_given(
    opened: Open, server: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.behave(key="sk-of-the-environment")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    assert opened(openai_key="").provider.trouble() is None
    assert isinstance(opened(openai_key="sk-given").provider.trouble(), ProviderUnavailable)


# ---- batches


def test_no_call_has_more_than_2048_inputs(opened: Open, server: ProviderServer) -> None:
    ev = opened(batch_size=5000)
    add_all(ev, KIND, *(f"text {n}" for n in range(5000)))
    assert ev.process_all().succeeded == 5000
    assert sorted(call.inputs for call in server.calls()) == [1666, 1667, 1667]
    assert server.seen().statuses == {200: 3}


@pytest.mark.parametrize("letter", ["a", "é", "語"])
def test_no_call_has_more_than_300_000_tokens(
    opened: Open, server: ProviderServer, letter: str
) -> None:
    ev = opened(batch_size=500, chunk_tokens=8000)
    add_all(ev, KIND, *(f"{n} " + letter * (6000 // len(letter.encode())) for n in range(400)))
    assert ev.process_all().succeeded == 400
    calls = server.calls()
    assert max(call.tokens for call in calls) <= 300_000
    # and they are not too small: our count is on the safe side, and the first are for learning
    assert 3 <= len(calls) <= 5
    assert server.seen().statuses == {200: len(calls)}


def test_the_number_of_texts_in_a_call_is_a_setting(opened: Open, server: ProviderServer) -> None:
    ev = opened(provider_batch=7)
    add_all(ev, KIND, *(f"text {n}" for n in range(20)))
    ev.process_all()
    assert sorted(call.inputs for call in server.calls()) == [6, 7, 7]
    assert opened(provider_batch=5000).embedder.max_batch == 2048


# ---- whose fault it is: the provider's


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        pytest.param({"key": "sk-other"}, r"rejected the API key \(401\)", id="401"),
        pytest.param(
            {"key": "sk-other", "key_status": 403}, r"rejected the API key \(403\)", id="403"
        ),
        pytest.param({"openai_models": {}}, f"404.*The model `{SMALL}` does not exist", id="404"),
        pytest.param({"missing": ["/v1/embeddings"]}, "answered 404: Invalid URL", id="no path"),
        pytest.param({"quota_used_up": True}, "quota .* used up", id="quota"),
        pytest.param({"down": True}, "is unreachable at http://127.0.0.1", id="refused"),
        pytest.param({"fail": EVERY_TEXT}, "a known good text: .* 500: The server had", id="500"),
        pytest.param({"fail": EVERY_TEXT, "fail_status": 503}, "503: .*overloaded", id="503"),
        pytest.param({"fail": EVERY_TEXT, "fail_status": 504}, "answered 504", id="504"),
        pytest.param({"proxy": EVERY_CALL}, "502: <html>.*Bad Gateway", id="proxy"),
        pytest.param(
            {"proxy": EVERY_CALL, "proxy_status": 200}, "not JSON: <html>", id="a page that is fine"
        ),
        pytest.param({"proxy": EVERY_CALL, "proxy_status": 302}, "answered 302", id="redirect"),
        pytest.param({"refuse": EVERY_TEXT}, r"'\$.input' is invalid", id="400 for all"),
        pytest.param({"hang": EVERY_TEXT}, "did not respond within 0.6 s", id="hang"),
        pytest.param({"drip": EVERY_TEXT}, "did not respond within 0.6 s", id="drip"),
        pytest.param({"truncated": EVERY_TEXT}, "not JSON", id="truncated"),
        pytest.param({"cut": EVERY_TEXT}, "the connection to .* failed", id="cut"),
        pytest.param({"wrong_count": EVERY_TEXT}, "0 vectors for 1 texts", id="wrong count"),
        pytest.param(
            {"wrong_dimensions": EVERY_TEXT}, "4 dimensions instead of 8", id="wrong dimensions"
        ),
        pytest.param({"nan": EVERY_TEXT}, "failed to embed a known good text", id="NaN"),
        pytest.param({"zero": EVERY_TEXT}, "failed to embed a known good text", id="zero"),
    ],
)
def test_what_no_text_can_help_is_an_outage(
    openai_at: Make, server: ProviderServer, behaviour: dict[str, Any], words: str
) -> None:
    embedder = openai_at(seconds=0.6)
    server.behave(**behaviour)
    with pytest.raises(ProviderUnavailable, match=words):
        embed(embedder, TEXTS)
    server.behaviour = Behaviour()
    assert embed(embedder, TEXTS).errors == {}  # and goes on by itself


def test_a_host_that_nobody_knows_is_an_outage(openai_at: Make) -> None:
    with pytest.raises(ProviderUnavailable, match=r"is unreachable at http://no-host\.invalid"):
        openai_at(url="http://no-host.invalid/v1").embed(TEXTS)


def test_a_port_where_nobody_listens_is_an_outage(openai_at: Make) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(ProviderUnavailable, match="refused"):
            openai_at(url=f"http://127.0.0.1:{port}/v1").embed(TEXTS)


@pytest.mark.parametrize("url", ["http://[bad", "no-scheme.example/v1", "ftp://example.com"])
def test_what_is_no_url_is_told(openai_at: Make, url: str) -> None:
    with pytest.raises(ProviderUnavailable, match=r"at .* cannot be used"):
        openai_at(url=url).embed(TEXTS)


def test_an_answer_without_end_is_not_read_to_its_end(
    openai_at: Make, server: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evervec.runtime.http.MOST_BYTES", 1000)
    with pytest.raises(BadAnswer, match="more than 1000 bytes"):
        openai_at(dimensions=1024).ask(TEXTS)


# ---- whose fault it is: a text's


@pytest.mark.parametrize(
    ("behaviour", "error", "words"),
    [
        *BREAKS,
        pytest.param({"refuse": "poison"}, InvalidInput, r"'\$.input' is invalid", id="400"),
        pytest.param({"refuse": "poison", "refuse_status": 413}, InvalidInput, "invalid", id="413"),
        pytest.param({"refuse": "poison", "refuse_status": 422}, InvalidInput, "invalid", id="422"),
        pytest.param({"fail": "poison"}, ProviderFault, "500: The server had an error", id="500"),
        pytest.param({"proxy": "poison"}, ProviderFault, "502: <html>", id="proxy"),
        pytest.param({"drip": "poison"}, ProviderFault, "did not respond within", id="drip"),
        pytest.param({"wrong_count": "poison"}, BadAnswer, "0 vectors for 1 texts", id="count"),
        pytest.param(
            {"wrong_dimensions": "poison"}, BadAnswer, "4 dimensions instead of 8", id="dimensions"
        ),
    ],
)
def test_a_text_that_breaks_it_is_found_alone(
    openai_at: Make,
    server: ProviderServer,
    behaviour: dict[str, Any],
    error: type[Exception],
    words: str,
) -> None:
    server.behave(**behaviour)
    texts = [*TEXTS, "some poison", "a last one"]
    answer = embed(openai_at(seconds=patience(behaviour)), texts)
    assert list(answer.errors) == [4]
    assert isinstance(answer.errors[4], error)
    with pytest.raises(error, match=words):
        raise answer.errors[4]
    good = [0, 1, 2, 3, 5]
    assert answer.vectors[good] == pytest.approx(vectors([texts[n] for n in good], 8), abs=1e-6)
    assert not answer.vectors[4].any()


def test_a_failure_that_passes_costs_a_few_calls_and_no_record(
    openai_at: Make, server: ProviderServer
) -> None:
    server.script(Behaviour(fail=EVERY_CALL))
    assert embed(openai_at(), TEXTS).errors == {}
    assert [call.inputs for call in server.calls()] == [4, 1, 2, 2]  # with a probe between


# ---- 429


@pytest.mark.parametrize(
    ("tells", "least", "most"),
    [
        (("retry-after",), 29, 31),
        (("retry-after-ms",), 29, 30.01),
        (("retry-after-date",), 28, 32),
        (("x-ratelimit",), 29, 30.01),
        (("retry-after", "retry-after-ms", "x-ratelimit"), 29, 30.01),
    ],
)
def test_a_429_says_for_how_long_to_leave_it_alone(
    server: ProviderServer, openai_at: Make, tells: tuple[str, ...], least: float, most: float
) -> None:
    server.behave(requests=0, window=30.0, tells=tells)
    with pytest.raises(RateLimited, match="rate limit reached: Rate limit reached") as caught:
        openai_at().ask(TEXTS)
    assert caught.value.retry_after is not None
    assert least < caught.value.retry_after <= most
    assert server.seen().calls == 1


def test_a_429_that_says_nothing_leaves_it_open(openai_at: Make, server: ProviderServer) -> None:
    server.behave(requests=0, tells=())
    with pytest.raises(RateLimited) as caught:
        openai_at().ask(TEXTS)
    assert caught.value.retry_after is None


def test_the_last_call_that_a_limit_allows_says_when_the_next_one_may_come(
    openai_at: Make, server: ProviderServer
) -> None:
    server.behave(requests=2, window=30.0)
    embedder = openai_at()
    assert embedder.ask(TEXTS).pause == 0
    assert 29 < embedder.ask(TEXTS).pause <= 30
    server.behave(requests=None, tokens=sum(map(count_tokens, TEXTS)) * 3)
    assert 29 < embedder.ask(TEXTS).pause <= 30


def test_embed_adds_up_what_its_calls_cost(openai_at: Make, server: ProviderServer) -> None:
    server.behave(fail="poison")
    answer = embed(openai_at(), [*TEXTS, "some poison"])
    assert answer.calls == server.seen().calls > 5
    assert answer.tokens == server.seen().tokens


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2.0),
        ({"retry-after": "Fri, 01 Jan 2010 00:00:00 GMT"}, 0.0),
        ({"retry-after": "in a while"}, None),
        ({"retry-after": "", "x-ratelimit-remaining-tokens": "0"}, None),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-remaining-requests": "1", "x-ratelimit-reset-requests": "6m0s"}, None),
        (
            {
                "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m30.5s",
            },
            90.5,
        ),
    ],
)  # fmt: skip
def test_headers_are_read_with_care(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds
    if not any(name.startswith("retry") for name in headers):
        assert limit_pause(headers) == (seconds or 0.0)


@pytest.mark.parametrize("value", ["inf", "nan", "1e999"])
def test_a_pause_without_end_is_no_pause_that_was_asked_for(value: str) -> None:
    """Or the gate would stay shut for ever, with nobody ever trying again."""
    assert retry_after({"retry-after": value}) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1), ("6m0s", 360), ("120ms", 0.12), ("1h1m1.25s", 3661.25), ("12", 12), ("", 0),
        ("soon", 0), ("17.5µs", 17.5e-6), ("-5", 0),
    ],
)  # fmt: skip
def test_durations_are_read_as_go_writes_them(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


# ---- connections


def test_calls_one_after_the_other_take_one_connection(
    openai_at: Make, server: ProviderServer
) -> None:
    embedder = openai_at()
    for n in range(10):
        embedder.embed([f"text {n}"])
        embedder.embed_query("a question")
    assert server.seen().connections == 1


def test_calls_at_the_same_time_take_as_many_connections_and_keep_them(
    openai_at: Make, server: ProviderServer
) -> None:
    embedder = openai_at()
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            server.behave(slots=0)
            calls = [pool.submit(embedder.embed, TEXTS) for _ in range(8)]
            until(lambda: server.seen().in_flight == 8)
            server.behave(slots=None)
            assert all(len(call.result(10)) == 4 for call in calls)
    assert server.seen().connections == 8


def test_a_kept_connection_that_the_server_closes_is_tried_once_more(
    openai_at: Make, server: ProviderServer
) -> None:
    server.behave(keeps=1)
    embedder = openai_at()
    for n in range(4):
        assert len(embedder.embed([f"text {n}"])) == 1
    answered = [call for call in server.calls() if call.status == 200]
    assert len(answered) == 4
    assert all(a.connection < b.connection for a, b in pairwise(answered))


def test_it_is_tried_once_more_and_not_for_ever(openai_at: Make, server: ProviderServer) -> None:
    server.behave(keeps=0)
    with pytest.raises(ProviderFault, match=r"the connection to .* failed"):
        openai_at().ask(TEXTS)
    assert server.seen().calls == 2


def test_a_question_has_less_time_than_a_batch(openai_at: Make, server: ProviderServer) -> None:
    server.behave(latency=0.5)
    embedder = openai_at(seconds=30.0, query_seconds=0.05)
    with pytest.raises(ProviderFault, match=r"within 0\.05 s"):
        embedder.embed_query("a question")
    assert len(embedder.embed(TEXTS)) == 4


def test_closing_a_store_closes_the_connections_that_opening_it_made(
    opened: Open, server: ProviderServer
) -> None:
    ev = opened("openai")
    ev.add(KIND, "text", id="1")
    ev.process_all()
    ev.close()
    with pytest.raises(RuntimeError, match="closed"):
        ev.embedder.embed(["text"])


def test_closing_a_store_leaves_the_callers_own_embedder_alone(
    opened: Open, openai_at: Make
) -> None:
    embedder = openai_at()
    opened(embedder).close()
    assert len(embedder.embed(TEXTS)) == 4


# ---- the key


def leaks(text: str) -> bool:
    return any(KEY[start : start + 8] in text for start in range(3, len(KEY) - 8))


@pytest.mark.parametrize("key", [KEY, f"{KEY}\n", f" {KEY}", f"{KEY}é"])
@pytest.mark.parametrize(
    "behaviour",
    [
        {"key": "sk-other"},
        {"key": "sk-other", "key_status": 400},
        {"refuse": EVERY_TEXT, "refuse_words": f"we do not like Bearer {KEY} here"},
        {"refuse": EVERY_TEXT, "refuse_words": "x" * 285 + KEY},
        {"down": True},
        {"cut": EVERY_TEXT},
    ],
    ids=["401", "400", "words", "long words", "down", "cut"],
)
def test_a_key_is_in_no_error_log_job_or_repr(
    opened: Open,
    server: ProviderServer,
    caplog: pytest.LogCaptureFixture,
    key: str,
    behaviour: dict[str, Any],
) -> None:
    said = []
    server.behave(**behaviour)
    with caplog.at_level(logging.DEBUG):
        try:
            ev = opened(openai_key=key, max_attempts=1)
            ev.add(KIND, "text", id="1")
            said.append(repr(ev.process_all()))
            said.append(repr(ev.search("text")))
            said.append(repr(ev.provider.trouble()))
            said += [repr(ev.settings), repr(ev.embedder), repr(ev.queue.stats())]
            said += [repr(job_of(ev, "1")), repr(ev.queue.history(KIND, "1"))]
        except Exception as error:
            said.append(repr(error))
    said += [record.getMessage() for record in caplog.records]
    assert [text for text in said if leaks(text)] == []


def test_a_key_from_a_file_with_its_last_newline_is_a_good_key(
    opened: Open, server: ProviderServer
) -> None:
    server.behave(key=KEY)
    assert opened(openai_key=f"{KEY}\n").provider.trouble() is None


def test_a_password_in_a_url_is_in_no_error(openai_at: Make, server: ProviderServer) -> None:
    embedder = openai_at(url=f"http://user:{KEY}@127.0.0.1:{server.port}/v1", key="")
    changes: list[dict[str, Any]] = [{"openai_models": {}}, {"down": True}]
    for change in changes:
        server.behave(**change)
        with pytest.raises(ProviderUnavailable) as caught:
            embedder.ask(TEXTS)
        assert not leaks(str(caught.value))


def test_settings_do_not_show_the_key() -> None:
    settings = Settings.load({"openai_key": KEY}, {})
    assert settings.openai_key == KEY
    assert not leaks(repr(settings))
    assert not leaks(str(settings))
    with pytest.raises(SettingsError) as caught:
        Settings.load({"openai_key": KEY.encode()}, {})
    assert not leaks(str(caught.value))
