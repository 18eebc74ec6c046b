"""The provider of the tests speaks as the real ones do: their official clients are the judges."""

import json
import math
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import ollama
import openai
import pytest
from numpy.typing import NDArray

from support.processes import until
from support.provider import (
    EVERY_CALL,
    EVERY_TEXT,
    Behaviour,
    Log,
    ProviderServer,
    count_tokens,
    go_duration,
    vector,
    vectors,
)
from support.provider_process import ProviderProcess
from support.world import START, Clock

SMALL = "text-embedding-3-small"
MXBAI = "mxbai-embed-large"
TEXTS = ["a first text", "日本語のテキスト", "a third one"]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Iterator[ProviderServer]:
    with ProviderServer(keep_texts=True, clock=clock) as server:
        yield server


def openai_at(url: str, **given: Any) -> openai.OpenAI:
    # no certificates: to read them takes longer than most of these tests
    http = openai.DefaultHttpxClient(verify=False)
    return openai.OpenAI(base_url=url, api_key="sk-right", http_client=http, **given)


@pytest.fixture
def openai_client(server: ProviderServer) -> Iterator[openai.OpenAI]:
    """It does not try again, so that each error is seen."""
    with openai_at(server.openai_url, max_retries=0) as client:
        yield client


@pytest.fixture
def retrying_client(server: ProviderServer) -> Iterator[openai.OpenAI]:
    with openai_at(server.openai_url) as client:
        yield client


@pytest.fixture
def ollama_client(server: ProviderServer) -> Iterator[ollama.Client]:
    with ollama.Client(server.url, timeout=10, verify=False) as client:
        yield client


@pytest.fixture
def http(server: ProviderServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, verify=False) as client:
        yield client


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


Embed = Callable[..., Any]


@pytest.fixture
def embed(openai_client: openai.OpenAI) -> Embed:
    """What OpenAI's client makes of some texts; short vectors, for speed."""

    def embed(
        *texts: str, timeout: float = 10.0, **given: Any
    ) -> openai.types.CreateEmbeddingResponse:
        asked = {"model": SMALL, "dimensions": 8, "input": texts, **given}
        return openai_client.embeddings.create(timeout=timeout, **asked)

    return embed


def rows(answer: openai.types.CreateEmbeddingResponse) -> list[list[float]]:
    return [datum.embedding for datum in answer.data]


def singles(numbers: Sequence[Any]) -> NDArray[np.float32]:
    """Numbers as they were before they were written down."""
    return np.array(numbers, np.float32)


def statuses(server: ProviderServer) -> list[int | None]:
    return [call.status for call in server.calls()]


# ---- OpenAI


def test_openai_answers_a_vector_a_text_in_order(openai_client: openai.OpenAI) -> None:
    answer = openai_client.embeddings.create(model=SMALL, input=TEXTS)
    assert (answer.object, answer.model) == ("list", SMALL)
    assert [(datum.object, datum.index) for datum in answer.data] == [
        ("embedding", 0), ("embedding", 1), ("embedding", 2)
    ]  # fmt: skip
    assert rows(answer) == vectors(TEXTS, 1536).tolist()
    tokens = sum(map(count_tokens, TEXTS))
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (tokens, tokens)


def test_openai_takes_one_text_too(openai_client: openai.OpenAI) -> None:
    answer = openai_client.embeddings.create(model=SMALL, input="a first text")
    assert rows(answer) == [vector("a first text", 1536).tolist()]


def test_openai_takes_tokens_in_place_of_texts(openai_client: openai.OpenAI) -> None:
    one = openai_client.embeddings.create(model=SMALL, input=[1, 2, 3])
    two = openai_client.embeddings.create(model=SMALL, input=[[1, 2, 3], [4]])
    assert (len(one.data), one.usage.total_tokens) == (1, 3)
    assert (len(two.data), two.usage.total_tokens) == (2, 4)
    assert two.data[0].embedding == one.data[0].embedding != two.data[1].embedding


def test_base64_is_what_the_client_asks_for_and_holds_the_same_as_floats(
    openai_client: openai.OpenAI,
) -> None:
    raw = openai_client.embeddings.with_raw_response.create(model=SMALL, input=TEXTS)
    assert all(isinstance(d["embedding"], str) for d in json.loads(raw.text)["data"])
    floats = openai_client.embeddings.create(model=SMALL, input=TEXTS, encoding_format="float")
    assert np.array_equal(singles(rows(raw.parse())), singles(rows(floats)))


@pytest.mark.parametrize("dimensions", [1, 2, 7, 256, 1536])
def test_vectors_have_the_dimensions_that_were_asked_for(embed: Embed, dimensions: int) -> None:
    expected = vectors(TEXTS, dimensions)
    assert expected.shape == (3, dimensions)
    assert np.linalg.norm(expected, axis=1) == pytest.approx(1.0, abs=1e-6)
    packed = embed(*TEXTS, dimensions=dimensions)
    floats = embed(*TEXTS, dimensions=dimensions, encoding_format="float")
    assert np.array_equal(singles(rows(packed)), expected)
    assert np.array_equal(singles(rows(floats)), expected)


def test_a_shorter_vector_is_the_beginning_of_a_longer_one(embed: Embed) -> None:
    (long,), (short,) = rows(embed("text", dimensions=64)), rows(embed("text", dimensions=16))
    assert short == pytest.approx(np.array(long[:16]) / np.linalg.norm(long[:16]))


def test_openai_lists_its_models(openai_client: openai.OpenAI, server: ProviderServer) -> None:
    server.behave(openai_models={SMALL: 1536, "my-own": 12})
    assert [model.id for model in openai_client.models.list()] == [SMALL, "my-own"]
    answer = openai_client.embeddings.create(model="my-own", input="text")
    assert len(answer.data[0].embedding) == 12


def test_a_wrong_key_is_an_authentication_error(server: ProviderServer, embed: Embed) -> None:
    server.behave(key="sk-other")
    with pytest.raises(openai.AuthenticationError, match="Incorrect API key") as caught:
        embed("text")
    assert (caught.value.code, caught.value.type) == ("invalid_api_key", "invalid_request_error")
    server.behave(key="sk-right")
    embed("text")


def test_a_key_without_rights_is_a_permission_error(server: ProviderServer, embed: Embed) -> None:
    server.behave(key="sk-other", key_status=403)
    with pytest.raises(openai.PermissionDeniedError):
        embed("text")


def test_a_server_that_is_only_like_openai_may_know_no_base64(
    server: ProviderServer, openai_client: openai.OpenAI
) -> None:
    server.behave(base64=False)
    raw = openai_client.embeddings.with_raw_response.create(model=SMALL, input=TEXTS, dimensions=8)
    assert all(isinstance(d["embedding"], list) for d in json.loads(raw.text)["data"])
    assert rows(raw.parse()) == pytest.approx(vectors(TEXTS, 8))


def test_texts_that_share_words_can_be_near_each_other(
    server: ProviderServer, embed: Embed, ollama_client: ollama.Client
) -> None:
    server.behave(words=True)
    texts = "a red apple", "one red apple", "stock market"
    found = embed(*texts, dimensions=256)
    for near, like, far in (
        singles(rows(found)),
        singles(ollama_client.embed(MXBAI, texts).embeddings),
    ):
        assert near @ like > 0.5 > near @ far
        assert np.linalg.norm(near) == pytest.approx(1.0)


def test_an_unknown_model_is_not_found(embed: Embed) -> None:
    with pytest.raises(openai.NotFoundError, match="`gone` does not exist") as caught:
        embed("text", model="gone")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"input": ""}, r"'\$.input' is invalid"),
        ({"input": ["text", ""]}, r"'\$.input' is invalid"),
        ({"input": []}, r"'\$.input' is invalid"),
        ({"input": [["text"]]}, r"'\$.input' is invalid"),
        ({"input": ["text"] * 2049}, r"'\$.input' is invalid"),
        ({"input": ["text", "a" * 4 * 8192]}, "maximum context length is 8192 tokens"),
        ({"input": ["a" * 32_000] * 38}, "Requested 304038 tokens, max 300000 tokens per request"),
        ({"dimensions": 1537}, "'dimensions' = 1537"),
        ({"dimensions": 0}, "'dimensions' = 0"),
        ({"model": "text-embedding-ada-002"}, "does not support specifying dimensions"),
        ({"encoding_format": "hex"}, "encoding_format"),
        ({"model": ""}, "must provide a model"),
    ],
)
def test_what_openai_does_not_take_is_a_bad_request(
    embed: Embed, asked: dict[str, Any], words: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=words) as caught:
        embed("text", **asked)
    assert caught.value.type in ("invalid_request_error", "max_tokens_per_request")


@pytest.mark.parametrize("texts", [["text"] * 2048, ["a" * 4 * 8191], ["a" * 32_000] * 37])
def test_what_just_keeps_to_the_limits_is_taken(embed: Embed, texts: list[str]) -> None:
    assert len(embed(*texts).data) == len(texts)


@pytest.mark.parametrize("status", [500, 503, 504])
def test_an_error_of_openai_is_an_internal_server_error(
    server: ProviderServer, embed: Embed, status: int
) -> None:
    server.behave(fail=EVERY_TEXT, fail_status=status)
    with pytest.raises(openai.InternalServerError) as caught:
        embed("text")
    assert (caught.value.status_code, caught.value.type) == (status, "server_error")


def test_the_usual_client_tries_again_after_an_error(
    server: ProviderServer, retrying_client: openai.OpenAI
) -> None:
    server.script(Behaviour(fail=EVERY_CALL))
    assert retrying_client.embeddings.create(model=SMALL, input="text").data
    assert statuses(server) == [500, 200]


# ---- too many calls


def test_requests_beyond_the_limit_get_429_until_the_window_ends(
    server: ProviderServer, embed: Embed, clock: Clock
) -> None:
    server.behave(requests=2, window=90.0)
    embed("text")
    clock.move(29.5)
    embed("text")
    with pytest.raises(openai.RateLimitError, match=r"requests per min \(RPM\): Limit 2") as caught:
        embed("text")
    assert (caught.value.code, caught.value.type) == ("rate_limit_exceeded", "requests")
    headers = caught.value.response.headers
    assert headers["retry-after"] == "61"
    assert headers["x-ratelimit-limit-requests"] == "2"
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert headers["x-ratelimit-reset-requests"] == "1m0.5s"
    assert "retry-after-ms" not in headers
    clock.move(60.5)
    embed("text")
    assert statuses(server) == [200, 200, 429, 200]


def test_tokens_beyond_the_limit_get_429_and_those_left_are_told(
    server: ProviderServer, openai_client: openai.OpenAI, embed: Embed
) -> None:
    server.behave(tokens=100)
    raw = openai_client.embeddings.with_raw_response.create(model=SMALL, input="a" * 4 * 59)
    assert raw.headers["x-ratelimit-remaining-tokens"] == "40"
    with pytest.raises(openai.RateLimitError, match="Used 60, Requested 41") as caught:
        embed("a" * 4 * 40)
    assert caught.value.type == "tokens"
    assert caught.value.response.headers["x-ratelimit-reset-tokens"] == "1m0s"
    embed("a" * 4 * 39)


def test_a_storm_refuses_all_calls_until_its_time(
    server: ProviderServer,
    embed: Embed,
    ollama_client: ollama.Client,
    http: httpx.Client,
    clock: Clock,
) -> None:
    server.behave(storm_until=START + 7.2)
    with pytest.raises(openai.RateLimitError, match=r"try again in 7\.2s") as caught:
        embed("text")
    assert caught.value.response.headers["retry-after"] == "8"
    assert caught.value.response.headers["x-ratelimit-remaining-requests"] == "0"
    with pytest.raises(ollama.ResponseError) as told:
        ollama_client.embed(MXBAI, "text")
    assert told.value.status_code == 429
    plain = http.post("/api/embed", json={"model": MXBAI, "input": "text"})
    assert plain.headers["retry-after"] == "8"
    assert "x-ratelimit-reset-requests" not in plain.headers
    clock.move(7.2)
    embed("text")


def test_a_429_tells_what_it_is_told_to_tell(server: ProviderServer, embed: Embed) -> None:
    def told(*tells: str) -> dict[str, str]:
        server.behave(storm_until=START + 0.25, tells=tells)
        with pytest.raises(openai.RateLimitError) as caught:
            embed("text")
        headers = caught.value.response.headers
        return {k: v for k, v in headers.items() if k.startswith(("retry-", "x-ratelimit"))}

    assert told() == {}
    assert told("retry-after") == {"retry-after": "1"}
    assert told("retry-after-ms") == {"retry-after-ms": "250"}
    date = parsedate_to_datetime(told("retry-after-date")["retry-after"])
    assert date.timestamp() == START + 1
    with pytest.raises(ValueError, match="cannot tell when"):
        told("when")


def test_the_usual_client_comes_back_when_it_was_told() -> None:
    behaviour = Behaviour(storm_until=time.time() + 0.1, tells=("retry-after-ms",))
    with (
        ProviderServer(behaviour) as server,
        openai_at(server.openai_url) as client,
    ):
        client.embeddings.create(model=SMALL, input="text")
        assert statuses(server) == [429, 200]
        refused, taken = server.calls()
        assert taken.start >= behaviour.storm_until > refused.start


def test_a_used_up_quota_says_nothing_of_coming_back(server: ProviderServer, embed: Embed) -> None:
    server.behave(quota_used_up=True)
    with pytest.raises(openai.RateLimitError, match="exceeded your current quota") as caught:
        embed("text")
    assert (caught.value.code, caught.value.type) == ("insufficient_quota", "insufficient_quota")
    assert "retry-after" not in caught.value.response.headers


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0s"), (0.0004, "0s"), (0.12, "120ms"), (1, "1s"), (1.5, "1.5s"), (59.999, "59.999s"),
        (60, "1m0s"), (360, "6m0s"), (3600, "1h0m0s"), (3661.25, "1h1m1.25s"),
    ],
)  # fmt: skip
def test_durations_are_written_as_go_does(seconds: float, written: str) -> None:
    assert go_duration(seconds) == written


# ---- Ollama


def test_ollama_answers_a_vector_a_text_in_order(ollama_client: ollama.Client) -> None:
    answer = ollama_client.embed(MXBAI, TEXTS, options={"num_ctx": 512}, keep_alive="5m")
    assert answer.model == MXBAI
    assert np.array_equal(singles(answer.embeddings), vectors(TEXTS, 1024))
    assert answer.prompt_eval_count == sum(map(count_tokens, TEXTS))
    assert answer.total_duration is not None
    assert answer.load_duration is not None
    assert answer.total_duration >= answer.load_duration > 0


def test_ollama_takes_one_text_too(ollama_client: ollama.Client) -> None:
    answer = ollama_client.embed(f"{MXBAI}:latest", "a first text")
    assert np.array_equal(singles(answer.embeddings), vectors(["a first text"], 1024))


@pytest.mark.parametrize("nothing", ["", []])
def test_ollama_answers_nothing_with_nothing(ollama_client: ollama.Client, nothing: Any) -> None:
    answer = ollama_client.embed(MXBAI, nothing)
    assert list(answer.embeddings) == []
    assert answer.prompt_eval_count is None


@pytest.mark.parametrize(("asked", "got"), [(64, 64), (1024, 1024), (4096, 1024), (None, 1024)])
def test_ollama_makes_vectors_shorter_but_not_longer(
    ollama_client: ollama.Client, asked: int | None, got: int
) -> None:
    (row,) = ollama_client.embed(MXBAI, "text", dimensions=asked).embeddings
    assert singles(row) == pytest.approx(vector("text", got))


def test_ollama_reads_a_long_text_as_far_as_its_context(ollama_client: ollama.Client) -> None:
    long = "日本" * 2000
    answer = ollama_client.embed(MXBAI, [long, long + "語"])
    assert answer.embeddings[0] == answer.embeddings[1]
    assert answer.prompt_eval_count == 2 * 512
    with pytest.raises(ollama.ResponseError, match="input length exceeds the context length") as e:
        ollama_client.embed(MXBAI, long, truncate=False)
    assert e.value.status_code == 400
    ollama_client.embed(MXBAI, "a" * 4 * 511, truncate=False)


def test_ollama_lists_its_models(
    ollama_client: ollama.Client, http: httpx.Client, server: ProviderServer
) -> None:
    server.behave(ollama_models={MXBAI: 1024, "my-own:v2": 12})
    listed = ollama_client.list().models
    assert [model.model for model in listed] == [f"{MXBAI}:latest", "my-own:v2"]
    for model in listed:
        assert model.modified_at is not None
        assert model.modified_at.tzinfo is not None
        assert model.size
        assert model.digest
        assert model.details is not None
        assert model.details.family == "bert"
    assert len(ollama_client.embed("my-own:v2", "text").embeddings[0]) == 12
    assert http.get("/api/version").json() == {"version": "0.33.0"}


def test_a_model_that_was_not_pulled_is_not_found(ollama_client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="model 'gone' not found") as caught:
        ollama_client.embed("gone", "text")
    assert caught.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match='model "gone" not found, try pulling') as old:
        ollama_client.embeddings("gone", "text")
    assert old.value.status_code == 404


def test_the_older_form_answers_one_text_with_a_vector_of_any_length(
    ollama_client: ollama.Client,
) -> None:
    row = singles(ollama_client.embeddings(MXBAI, "text").embedding)
    assert np.linalg.norm(row) == pytest.approx(16.0)
    assert row / 16 == pytest.approx(vector("text", 1024))
    assert list(ollama_client.embeddings(MXBAI, "").embedding) == []


def test_an_old_ollama_refuses_arrays_or_does_not_know_the_path(
    ollama_client: ollama.Client, server: ProviderServer
) -> None:
    server.behave(arrays=False)
    with pytest.raises(ollama.ResponseError, match="invalid input type") as caught:
        ollama_client.embed(MXBAI, TEXTS)
    assert caught.value.status_code == 400
    assert len(ollama_client.embed(MXBAI, TEXTS[0]).embeddings) == 1
    server.behave(missing=("/api/embed",))
    with pytest.raises(ollama.ResponseError, match="404 page not found") as older:
        ollama_client.embed(MXBAI, TEXTS[0])
    assert older.value.status_code == 404
    assert ollama_client.embeddings(MXBAI, TEXTS[0]).embedding


def test_a_busy_ollama_says_so(ollama_client: ollama.Client, server: ProviderServer) -> None:
    server.behave(slots=0, full_status=503)
    with pytest.raises(ollama.ResponseError, match="server busy, please try again") as caught:
        ollama_client.embed(MXBAI, "text")
    assert caught.value.status_code == 503


def test_what_ollama_cannot_read_is_a_bad_request(http: httpx.Client) -> None:
    for body, words in [(b"", "missing request body"), (b"{", "not JSON"), (b"[]", "object")]:
        answer = http.post("/api/embed", content=body)
        assert answer.status_code == 400
        assert words in answer.json()["error"]


# ---- down, slow and full


@pytest.mark.parametrize("times", [1, 3])
def test_a_server_that_is_down_refuses_and_comes_back_on_its_port(
    server: ProviderServer, embed: Embed, ollama_client: ollama.Client, times: int
) -> None:
    embed("text")
    for _ in range(times):
        server.behave(down=True)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port))
        with pytest.raises(openai.APIConnectionError) as caught:
            embed("text")
        assert type(caught.value) is openai.APIConnectionError
        with pytest.raises(ConnectionError, match="Failed to connect to Ollama"):
            ollama_client.list()
        server.behave(down=False)
        assert embed("text").data
        assert ollama_client.list().models


def test_no_one_else_gets_the_port_of_a_server_that_is_down(server: ProviderServer) -> None:
    server.behave(down=True)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", server.port))


def test_two_servers_cannot_have_one_port(server: ProviderServer) -> None:
    with pytest.raises(OSError, match="in use"):
        ProviderServer(port=server.port)


NEVER_ENDING = [
    Behaviour(hang=EVERY_CALL),
    Behaviour(slots=0),
    Behaviour(latency=600.0),
    Behaviour(drip=EVERY_TEXT, drip_seconds=600.0),
]


@pytest.mark.parametrize("behaviour", NEVER_ENDING, ids=["hang", "slots", "latency", "drip"])
def test_going_down_ends_the_calls_under_way(
    server: ProviderServer, embed: Embed, pool: ThreadPoolExecutor, behaviour: Behaviour
) -> None:
    server.behaviour = behaviour
    calls = [pool.submit(embed, f"text {n}") for n in range(3)]
    until(lambda: server.seen().in_flight == 3)
    server.behave(down=True)
    for call in calls:
        assert isinstance(call.exception(10), openai.APIConnectionError)
    assert server.seen().in_flight == 0
    assert statuses(server) == [None] * 3
    assert server.seen().embedded == 0


@pytest.mark.parametrize("behaviour", NEVER_ENDING, ids=["hang", "slots", "latency", "drip"])
def test_the_end_of_a_server_waits_for_no_call_and_leaves_no_thread(
    pool: ThreadPoolExecutor, behaviour: Behaviour
) -> None:
    before = set(threading.enumerate())
    with ProviderServer(behaviour) as server, openai_at(server.openai_url, max_retries=0) as client:
        calls = [
            pool.submit(client.embeddings.create, model=SMALL, input=f"text {n}") for n in range(3)
        ]
        until(lambda: server.seen().in_flight == 3)
        begin = time.monotonic()
        server.close()
        assert time.monotonic() - begin < 20
        new = set(threading.enumerate()) - before
        assert [t.name for t in new if t.name.startswith("provider-")] == []
        for call in calls:
            assert isinstance(call.exception(10), openai.APIConnectionError)


def test_a_call_takes_its_latency(server: ProviderServer, embed: Embed) -> None:
    server.behave(latency=0.05)
    begin = time.monotonic()
    embed("text")
    assert time.monotonic() - begin >= 0.05
    server.behave(latency=60.0)
    with pytest.raises(openai.APITimeoutError):
        embed("text", timeout=0.05)
    until(lambda: server.seen().in_flight == 0, "the server has noticed that its client left")


def test_calls_beyond_the_slots_wait_for_their_turn(
    server: ProviderServer, embed: Embed, pool: ThreadPoolExecutor
) -> None:
    server.behave(slots=0, latency=0.03)
    calls: list[Future[Any]] = [pool.submit(embed, f"text {n}") for n in range(5)]
    until(lambda: server.seen().in_flight == 5)
    server.behave(slots=2)
    begin = time.monotonic()
    assert all(call.result(10).data for call in calls)
    assert time.monotonic() - begin >= 0.09
    assert server.seen().peak == 5


def test_calls_beyond_the_slots_can_be_refused(server: ProviderServer, embed: Embed) -> None:
    server.behave(slots=0, full_status=429)
    with pytest.raises(openai.RateLimitError):
        embed("text")
    server.behave(full_status=503)
    with pytest.raises(openai.InternalServerError):
        embed("text")


# ---- what goes wrong


def test_a_call_that_hangs_times_out_and_only_where_it_should(
    server: ProviderServer, embed: Embed, openai_client: openai.OpenAI
) -> None:
    server.behave(hang="poison")
    with pytest.raises(openai.APITimeoutError):
        embed("good", "some poison", timeout=0.1)
    embed("good")
    server.behave(hang=EVERY_TEXT)
    with pytest.raises(openai.APITimeoutError):
        embed("good", timeout=0.1)
    openai_client.models.list()
    server.behave(hang=EVERY_CALL)
    with pytest.raises(openai.APITimeoutError):
        openai_client.models.list(timeout=0.1)


def test_ollama_hangs_too(server: ProviderServer) -> None:
    server.behave(hang=EVERY_CALL)
    with ollama.Client(server.url, timeout=0.1) as client:
        with pytest.raises(httpx.ReadTimeout):
            client.list()
        with pytest.raises(httpx.ReadTimeout):
            client.embed(MXBAI, "text")


def test_one_text_can_make_every_batch_fail(
    server: ProviderServer, embed: Embed, ollama_client: ollama.Client
) -> None:
    server.behave(fail="poison")
    with pytest.raises(openai.InternalServerError):
        embed("good", "some poison", "good")
    with pytest.raises(ollama.ResponseError, match="EOF") as caught:
        ollama_client.embed(MXBAI, ["good", "some poison"])
    assert caught.value.status_code == 500
    embed("good")
    ollama_client.embed(MXBAI, "good")
    assert server.times_embedded("good", "some poison") == [2, 0]


def test_one_text_can_be_refused_without_a_word_of_which(
    server: ProviderServer, embed: Embed, ollama_client: ollama.Client
) -> None:
    server.behave(refuse="poison")
    with pytest.raises(openai.BadRequestError, match=r"'\$.input' is invalid") as caught:
        embed("good", "some poison")
    assert "poison" not in str(caught.value)
    with pytest.raises(ollama.ResponseError, match="exceeds the context length"):
        ollama_client.embed(MXBAI, ["good", "some poison"])
    server.behave(refuse_status=413)
    with pytest.raises(openai.APIStatusError) as too_large:
        embed("good", "some poison")
    assert too_large.value.status_code == 413
    server.behave(refuse_status=400, refuse_words="embedding contains NaN or Inf values")
    with pytest.raises(ollama.ResponseError, match="contains NaN"):
        ollama_client.embed(MXBAI, ["good", "some poison"])


def test_a_proxy_answers_with_a_page(
    server: ProviderServer, embed: Embed, ollama_client: ollama.Client
) -> None:
    server.behave(proxy=EVERY_CALL)
    with pytest.raises(openai.InternalServerError) as caught:
        embed("text")
    assert caught.value.status_code == 502
    assert caught.value.response.headers["content-type"] == "text/html"
    for call in (ollama_client.list, lambda: ollama_client.embed(MXBAI, "text")):
        with pytest.raises(ollama.ResponseError, match="<h1>502 Bad Gateway</h1>"):
            call()


def test_a_proxy_may_say_that_its_page_is_fine(server: ProviderServer, http: httpx.Client) -> None:
    server.behave(proxy=EVERY_CALL, proxy_status=200)
    answer = http.get("/api/tags")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html")


def test_half_the_json_is_no_json(
    server: ProviderServer, embed: Embed, ollama_client: ollama.Client
) -> None:
    server.behave(truncated=EVERY_TEXT)
    with pytest.raises(json.JSONDecodeError):
        embed("text")
    with pytest.raises(json.JSONDecodeError):
        ollama_client.embed(MXBAI, "text")


def test_a_body_can_end_in_the_middle(
    server: ProviderServer, embed: Embed, ollama_client: ollama.Client
) -> None:
    server.behave(cut=EVERY_TEXT)
    with pytest.raises(openai.APIConnectionError) as caught:
        embed("text")
    assert "peer closed connection without sending complete message body" in repr(
        caught.value.__cause__
    )
    with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
        ollama_client.embed(MXBAI, "text")
    server.behave(cut=None)
    embed("text")


def test_a_kept_connection_can_end_with_the_next_call(
    server: ProviderServer, embed: Embed, retrying_client: openai.OpenAI
) -> None:
    server.behave(keeps=2)
    embed("text")
    embed("text")
    with pytest.raises(openai.APIConnectionError):
        embed("text")
    assert statuses(server) == [200, 200, None]
    for _ in range(3):
        assert retrying_client.embeddings.create(model=SMALL, input="text").data


def test_a_drip_outlives_a_read_timeout(server: ProviderServer, embed: Embed) -> None:
    server.behave(drip=EVERY_TEXT, drip_seconds=0.001)
    begin = time.monotonic()
    assert rows(embed("text", timeout=0.1)) == [vector("text", 8).tolist()]
    assert time.monotonic() - begin > 0.1
    server.behave(drip_seconds=60.0)
    with pytest.raises(openai.APITimeoutError):
        embed("text", timeout=0.1)
    until(lambda: server.seen().in_flight == 0)


def test_a_vector_can_be_left_out(
    server: ProviderServer, embed: Embed, ollama_client: ollama.Client
) -> None:
    server.behave(wrong_count="poison")
    assert [datum.index for datum in embed("some poison", "good", "good").data] == [0, 1]
    with pytest.raises(ValueError, match="No embedding data received"):
        embed("some poison")
    assert len(ollama_client.embed(MXBAI, ["good", "some poison"]).embeddings) == 1
    assert len(embed("good", "good").data) == 2


def test_vectors_can_have_the_wrong_size(
    server: ProviderServer, embed: Embed, ollama_client: ollama.Client
) -> None:
    server.behave(wrong_dimensions="poison")
    assert [len(row) for row in rows(embed("good", "some poison"))] == [8, 4]
    found = ollama_client.embed(MXBAI, ["good", "some poison"]).embeddings
    assert [len(row) for row in found] == [1024, 512]
    server.behave(wrong_dimensions=EVERY_TEXT)
    assert [len(row) for row in rows(embed("good", "some poison"))] == [4, 4]


@pytest.mark.parametrize("given", [{}, {"encoding_format": "float"}])
def test_vectors_can_hold_nan_or_nothing_but_zeros(
    server: ProviderServer, embed: Embed, given: dict[str, Any], ollama_client: ollama.Client
) -> None:
    server.behave(nan="poison", zero="void")
    good, poison, void = rows(embed("good", "some poison", "a void", **given))
    assert singles(good) == pytest.approx(vector("good", 8))
    assert [math.isnan(number) for number in poison] == [True] + [False] * 7
    assert void == [0.0] * 8
    found = singles(ollama_client.embed(MXBAI, ["good", "some poison", "a void"]).embeddings)
    assert np.array_equal(found[0], vector("good", 1024))
    assert np.isnan(found[1]).sum() == 1
    assert not found[2].any()


def test_vectors_can_come_in_another_order_with_their_index(
    server: ProviderServer, embed: Embed
) -> None:
    server.behave(shuffled=True)
    answer = embed(*TEXTS)
    assert [datum.index for datum in answer.data] == [2, 1, 0]
    in_order = sorted(answer.data, key=lambda datum: datum.index)
    assert [datum.embedding for datum in in_order] == vectors(TEXTS, 8).tolist()


def test_faults_go_together(server: ProviderServer, embed: Embed) -> None:
    server.behave(refuse="worse", fail="poison", nan="bad", shuffled=True, latency=0.01)
    with pytest.raises(openai.InternalServerError):
        embed("worse", "poison")
    with pytest.raises(openai.BadRequestError):
        embed("worse", "bad")
    bad, good = embed("good", "bad").data
    assert (math.isnan(bad.embedding[0]), math.isnan(good.embedding[0])) == (True, False)


def test_a_script_gives_each_call_its_own_fault(server: ProviderServer, embed: Embed) -> None:
    server.script(Behaviour(fail=EVERY_CALL), Behaviour(quota_used_up=True), Behaviour())
    server.behave(proxy=EVERY_CALL)
    for error in (openai.InternalServerError, openai.RateLimitError):
        with pytest.raises(error):
            embed("text")
    embed("text")
    with pytest.raises(openai.InternalServerError):
        embed("text")
    assert statuses(server) == [500, 429, 200, 502]


def test_a_fault_that_does_not_exist_is_an_error(server: ProviderServer) -> None:
    with pytest.raises(ValueError, match="no such behaviour: explode"):
        server.behave(explode=True)


# ---- what it saw


def test_calls_are_seen_as_they_were(
    server: ProviderServer, embed: Embed, ollama_client: ollama.Client, clock: Clock
) -> None:
    embed("one", "two")
    clock.move(5)
    ollama_client.list()
    ollama_client.embed(MXBAI, "one")
    first, listed, last = server.calls()
    assert (first.path, first.inputs, first.texts) == ("/v1/embeddings", 2, ("one", "two"))
    assert (first.status, first.start, first.end) == (200, START, START)
    assert (listed.path, listed.inputs, listed.status) == ("/api/tags", 0, 200)
    assert (last.path, last.texts, last.start) == ("/api/embed", ("one",), START + 5)
    assert server.times_embedded("one", "two", "three") == [2, 1, 0]
    seen = server.seen()
    assert (seen.calls, seen.embedded, seen.tokens, seen.peak) == (3, 3, 3, 1)
    assert seen.paths == {"/v1/embeddings": 1, "/api/tags": 1, "/api/embed": 1}
    assert seen.statuses == {200: 3}
    server.forget()
    assert server.calls() == []
    assert (server.seen().calls, server.seen().connections) == (0, 0)


def test_a_client_keeps_its_connection(
    server: ProviderServer, embed: Embed, pool: ThreadPoolExecutor
) -> None:
    for n in range(10):
        embed(f"text {n}")
    assert server.seen().connections == 1
    server.behave(slots=0)
    calls = [pool.submit(embed, f"text {n}") for n in range(4)]
    until(lambda: server.seen().in_flight == 4)
    server.behave(slots=None)
    assert all(call.result(10) for call in calls)
    assert server.seen().connections == 4
    assert server.seen().peak == 4


def test_what_it_keeps_has_bounds(
    server: ProviderServer, embed: Embed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Log, "MOST_CALLS", 5)
    monkeypatch.setattr(Log, "MOST_CHARACTERS", 100)
    monkeypatch.setattr(Log, "MOST_TEXTS", 8)
    for n in range(8):
        embed(f"text {n}")
    assert [call.texts for call in server.calls()] == [(f"text {n}",) for n in range(3, 8)]
    embed("text 0", "t" * 90)
    assert len(server.calls()) == 1
    assert server.seen().calls == 9
    with pytest.raises(AssertionError, match="not all were counted"):
        server.times_embedded("text 0")


# ---- in a process of its own


def test_a_server_in_its_own_process_has_the_same_words() -> None:
    with (
        ProviderProcess(Behaviour(openai_models={SMALL: 12}), keep_texts=True) as server,
        openai_at(server.openai_url, max_retries=0) as client,
    ):
        (datum,) = client.embeddings.create(model=SMALL, input="text").data
        assert datum.embedding == vector("text", 12).tolist()
        server.behave(fail="poison", tells=["retry-after"])
        assert server.behaviour == Behaviour(
            openai_models={SMALL: 12}, fail="poison", tells=("retry-after",)
        )
        with pytest.raises(openai.InternalServerError):
            client.embeddings.create(model=SMALL, input="poison")
        server.behave(down=True)
        with pytest.raises(openai.APIConnectionError):
            client.embeddings.create(model=SMALL, input="text")
        server.behaviour = Behaviour()
        server.script(Behaviour(quota_used_up=True))
        with pytest.raises(openai.RateLimitError):
            client.embeddings.create(model=SMALL, input="text")
        client.embeddings.create(model=SMALL, input="text")
        assert server.times_embedded("text", "poison") == [2, 0]
        assert [call.texts for call in server.calls()] == [
            ("text",), ("poison",), ("text",), ("text",)
        ]  # fmt: skip
        assert server.seen().statuses == {200: 2, 500: 1, 429: 1}
        server.forget()
        assert server.seen().calls == 0
        with pytest.raises(ValueError, match="no such behaviour: explode"):
            server.behave(explode=True)
        server.behave(hang=EVERY_CALL)
        with pytest.raises(openai.APITimeoutError):
            client.models.list(timeout=0.1)


def test_it_can_be_started_by_hand() -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-W", "error", "-m", "tests.support.provider_process"),
            *("--port", "0", "--behave", '{"ollama_models": {"my-own": 12}}'),
        ],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        text=True,
    )
    try:
        assert process.stdout is not None
        url, control = process.stdout.readline().strip(), process.stdout.readline().strip()
        with ollama.Client(url) as client:
            assert [model.model for model in client.list().models] == ["my-own:latest"]
        with httpx.Client(verify=False) as http:
            assert http.get(control).json()["calls"] == 1
            assert http.post(control, json={"down": True}).json()["down"] is True
            with pytest.raises(httpx.ConnectError):
                http.get(f"{url}/api/tags")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
