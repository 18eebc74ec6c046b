"""A reranker on a loopback port: the wire formats of Cohere, Jina and Text Embeddings Inference.

The score of a text is the share of the query's words that it has. `answer` replaces what it says.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Self

from support.provider import Exchange, Http, as_json
from support.provider.http import Answer

KEY = "rr-secret-9f2c"


def share(query: str, text: str) -> float:
    wanted, there = set(query.lower().split()), set(text.lower().split())
    return len(wanted & there) / len(wanted)


class RerankServer:
    """Serves from its making until `close`."""

    def __init__(self, key: str | None = KEY) -> None:
        self._key = key
        self.asked: list[dict[str, Any]] = []
        self.answer: Callable[[Exchange], Answer | None] | None = None
        """what it does instead; None, the returned one too: what it should"""
        self._http = Http(self._answer)
        self._http.listen()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return self._http.url

    def close(self) -> None:
        self._http.hang_up()
        self._http.join()
        self._http.close()

    def _answer(self, exchange: Exchange) -> None:
        body = exchange.body()
        answer = self.answer(exchange) if self.answer else None
        exchange.send(answer or self._rerank(exchange, json.loads(body)))

    def _rerank(self, exchange: Exchange, asked: dict[str, Any]) -> Answer:
        self.asked.append(asked)
        given = exchange.headers.get("authorization")
        if self._key is not None and given != f"Bearer {self._key}":
            return as_json(401, {"message": f"invalid api token: {KEY}"})
        if exchange.path == "/rerank":
            if "texts" not in asked:
                return as_json(422, {"error": "missing field `texts`", "error_type": "Validation"})
            return as_json(200, _ranked(asked["query"], asked["texts"], "score"))
        if exchange.path not in ("/v2/rerank", "/v1/rerank"):
            return as_json(404, {"message": "not found"})
        if not asked.get("model") or "documents" not in asked:
            return as_json(400, {"message": "invalid request: model and documents are required"})
        found = _ranked(asked["query"], asked["documents"], "relevance_score")
        meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
        results = found[: asked.get("top_n") or len(found)]
        return as_json(200, {"id": "07734bd2", "results": results, "meta": meta})


def _ranked(query: str, texts: Sequence[str], name: str) -> list[dict[str, Any]]:
    found = [{"index": at, name: share(query, text)} for at, text in enumerate(texts)]
    return sorted(found, key=lambda result: -result[name])
