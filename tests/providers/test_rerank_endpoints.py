"""Rerankers behind HTTP, and what becomes of their failures. Cohere's own client judges the server
of these tests."""

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import cohere
import httpx
import pytest

import evervec
from evervec import Evervec, InvalidArgument, SettingsError
from evervec.embedders.hashing import HashingEmbedder
from evervec.errors import InvalidInput, ProviderUnavailable, RateLimited
from evervec.rerankers.endpoint import EndpointReranker
from support.provider import Exchange, as_json
from support.provider.http import Answer
from support.rerank_server import KEY, RerankServer, share

QUERY = "green tea leaves"
TEXTS = ["green tea", "black coffee", "green tea leaves", "leaves"]
SCORES = [share(QUERY, text) for text in TEXTS]


@pytest.fixture
def double() -> Iterator[RerankServer]:
    with RerankServer() as server:
        yield server


@pytest.fixture
def endpoint(double: RerankServer) -> Iterator[Callable[..., EndpointReranker]]:
    made = []

    def make(path: str = "/v2/rerank", **given: Any) -> EndpointReranker:
        options = {"name": "r", "model": "rerank-v3.5", "key": KEY, **given}
        made.append(EndpointReranker(double.url + path, **options))
        return made[-1]

    yield make
    for reranker in made:
        reranker.close()


@pytest.fixture
def ev(double: RerankServer) -> Iterator[Evervec]:
    with evervec.open(
        "memory:", embedder=HashingEmbedder(64), reranker=f"{double.url}/v1/rerank#m",
        rerank_key=KEY,
    ) as ev:  # fmt: skip
        for n, text in enumerate(TEXTS):
            ev.add("note", text, id=str(n))
        ev.process_all()
        yield ev


def saying(status: int, content: object, **headers: str) -> Callable[[Exchange], Answer]:
    return lambda exchange: as_json(status, content, headers)


def test_the_server_speaks_as_coheres_own_client_expects(double: RerankServer) -> None:
    with httpx.Client(verify=False) as http:
        client = cohere.ClientV2(KEY, base_url=double.url, httpx_client=http)
        answer = client.rerank(model="rerank-v3.5", query=QUERY, documents=TEXTS, top_n=4)
    assert [(r.index, r.relevance_score) for r in answer.results] == [
        (at, SCORES[at]) for at in (2, 0, 3, 1)
    ]
    (sent,) = double.asked
    mine = EndpointReranker(f"{double.url}/v2/rerank", name="r", model="rerank-v3.5", key=KEY)
    mine.rerank(QUERY, TEXTS)
    mine.close()
    assert double.asked[1] == sent


@pytest.mark.parametrize("path", ["/v2/rerank", "/v1/rerank", "/rerank"])
def test_scores_come_in_the_order_of_the_texts(
    endpoint: Callable[..., EndpointReranker], path: str
) -> None:
    assert endpoint(path).rerank(QUERY, TEXTS) == SCORES


def test_the_form_that_the_server_knows_is_kept(
    endpoint: Callable[..., EndpointReranker], double: RerankServer
) -> None:
    reranker = endpoint("/rerank")
    for _ in range(2):
        reranker.rerank(QUERY, TEXTS)
    assert ["texts" in asked for asked in double.asked] == [False, True, True]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (saying(401, {"message": f"bad key {KEY}"}), ProviderUnavailable),
        (saying(404, {"detail": f"no such model {KEY}"}), ProviderUnavailable),
        (saying(429, {"error": {"message": f"slow down {KEY}"}}), RateLimited),
        (saying(422, {"error": f"too long {KEY}"}), InvalidInput),
    ],
)
def test_errors_have_the_classes_of_embedders_and_no_key(
    endpoint: Callable[..., EndpointReranker], double: RerankServer, answer: Any, error: Any
) -> None:
    double.answer = answer
    with pytest.raises(error) as raised:
        endpoint().rerank(QUERY, TEXTS)
    assert KEY not in str(raised.value)


def results(*pairs: tuple[Any, Any]) -> dict[str, Any]:
    return {"results": [{"index": at, "relevance_score": score} for at, score in pairs]}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(results((0, 0.1), (1, 0.2), (2, 0.3)), id="too few"),
        pytest.param(results(*((n, 0.1) for n in range(5))), id="too many"),
        pytest.param(results((0, 0.1), (0, 0.2), (1, 0.3), (2, 0.4)), id="twice"),
        pytest.param(results((0, 0.1), (1, 0.2), (2, 0.3), (9, 0.4)), id="out of range"),
        pytest.param(results((0, 0.1), (1, 0.2), (2, 0.3), (-1, 0.4)), id="negative"),
        pytest.param(results((0, 0.1), (1, 0.2), (2, 0.3), (True, 0.4)), id="not a number"),
        pytest.param(results(*((n, float("nan")) for n in range(4))), id="NaN"),
        pytest.param(results(*((n, "0.5") for n in range(4))), id="text"),
        pytest.param(results(*((n, None) for n in range(4))), id="null"),
        pytest.param({"results": {"0": 1}}, id="object"),
        pytest.param([[], [], [], []], id="lists"),
        pytest.param({"results": [7, None, "x", []]}, id="mixed"),
        pytest.param("a text", id="no object"),
    ],
)
def test_an_invalid_answer_leaves_the_combined_order(
    ev: Evervec, double: RerankServer, content: object
) -> None:
    double.answer = saying(200, content)
    plain, hits = ev.search(QUERY, rerank=False), ev.search(QUERY)
    assert list(hits) == list(plain)
    assert hits.rerank_error == "m gave an invalid answer"
    assert not hits.reranked


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(saying(429, {}, **{"Retry-After": "7"}), "the rate limit of m is reached"),
        pytest.param(saying(500, {"message": KEY}), "m failed"),
        pytest.param(saying(401, {"message": KEY}), "m is unavailable"),
        pytest.param(saying(302, {}, Location="http://127.0.0.1:1/"), "m is unavailable"),
        pytest.param(saying(413, {"message": KEY}), "m rejected the texts"),
        pytest.param(lambda _: Answer(200, b"{" * 10_000), "m gave an invalid answer"),
        pytest.param(lambda _: Answer(200, b"x" * 99, sent=9), "m failed"),
    ],
)
def test_a_failure_leaves_the_combined_order_and_says_why(
    ev: Evervec, double: RerankServer, caplog: pytest.LogCaptureFixture, answer: Any, why: str
) -> None:
    caplog.set_level(logging.DEBUG)
    plain = ev.search(QUERY, rerank=False)
    double.answer = answer
    hits = ev.search(QUERY)
    assert list(hits) == list(plain)
    assert (hits.reranked, hits.rerank_error) == (False, why)
    assert why in caplog.text
    assert KEY not in caplog.text + json.dumps(hits.rerank_error)


def test_a_reranker_that_hangs_costs_one_budget(ev: Evervec, double: RerankServer) -> None:
    calls = []

    def hang(exchange: Exchange) -> Answer | None:
        calls.append(exchange)
        exchange.hang()
        return None

    double.answer = hang
    with evervec.open(
        "memory:", embedder=HashingEmbedder(64), reranker=f"{double.url}/v1/rerank#m",
        rerank_key=KEY, rerank_seconds=0.05, backoff_seconds=60.0,
    ) as slow:  # fmt: skip
        slow.add("note", "green tea", id="1")
        slow.process_all()
        whys = [slow.search(QUERY).rerank_error for _ in range(5)]
    assert whys == ["m did not respond within 0.05 s"] * 5
    assert len(calls) == 1


def test_it_is_used_again_after_the_pause(double: RerankServer) -> None:
    with evervec.open(
        "memory:", embedder=HashingEmbedder(64), reranker=f"{double.url}/v1/rerank#m",
        rerank_key=KEY, backoff_seconds=0.0,
    ) as ev:  # fmt: skip
        ev.add("note", "green tea", id="1")
        ev.process_all()
        double.answer = saying(500, {})
        assert not ev.search(QUERY).reranked
        double.answer = None
        assert ev.search(QUERY).reranked


def test_names_say_what_they_need(monkeypatch: pytest.MonkeyPatch, ev: Evervec) -> None:
    for name in ("COHERE_API_KEY", "JINA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for given, match in [
        ("cohere:rerank-v3.5", "set COHERE_API_KEY"),
        ("jina:", "set JINA_API_KEY"),
        ("local", "local:FOLDER"),
        ("local:/nowhere", "does not exist"),
        ("bm25", "unknown reranker"),
        ("http://host/rerank?key=sk-1", "cannot have a query"),
    ]:
        with pytest.raises(SettingsError, match=match) as raised:
            ev.search(QUERY, rerank=given)
        assert "sk-1" not in str(raised.value)
    with pytest.raises(InvalidArgument, match="an object with name and rerank"):
        ev.search(QUERY, rerank=7)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="set COHERE_API_KEY"):
        evervec.open("memory:", embedder="noop", reranker="cohere:rerank-v3.5")


def test_a_service_is_told_only_whether_to_rerank(ev: Evervec, double: RerankServer) -> None:
    from support.service import serving

    with serving() as serve:
        served = serve(ev, workers=0)
        key = served.key()
        with evervec.Client(served.url, key) as client:
            hits = client.search(QUERY, explain=True)
            assert [hit.id for hit in hits] == ["2", "0", "3", "1"]
            assert (hits.reranked, hits.rerank_error) == (True, None)
            why = hits[0].explanation
            assert why is not None
            assert why.reranked is not None
            assert (why.reranked.reranker, why.reranked.score) == ("m", 1.0)
            assert not client.search(QUERY, rerank=False).reranked
            double.answer = saying(500, {})
            assert client.search(QUERY, rerank=True).rerank_error == "m failed"
        refused = served.http(key).post(
            "/v1/search", json={"query": QUERY, "rerank": "http://169.254.169.254/"}
        )
        assert refused.status_code == 422
