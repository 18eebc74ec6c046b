"""Rerankers behind HTTP: Cohere, Jina, and servers with an API like theirs.

Cohere, Jina, vLLM, Infinity and LiteLLM take `documents` and answer with `results`, of which each
has an `index` and a `relevance_score`. Text Embeddings Inference takes `texts` and answers with a
list of `index` and `score`. Which of both a server speaks shows at the first call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evervec.embedders.http import Http, Reply
from evervec.errors import InvalidInput, SettingsError
from evervec.rerankers.base import BadScores

COHERE = "https://api.cohere.com/v2/rerank"
JINA = "https://api.jina.ai/v1/rerank"


class EndpointReranker:
    """Calls one URL. `seconds` limits a call that no deadline limits."""

    def __init__(
        self, url: str, *, name: str, model: str = "", key: str = "", seconds: float = 10.0
    ) -> None:
        if "?" in url:
            raise SettingsError(
                "the URL of a reranker cannot have a query: give its key as rerank_key"
            )
        self.name = name
        self._model = model
        self._http = Http(name, url, seconds, key)
        self._forms: tuple[str, ...] = ("documents", "texts")
        """of requests, that the server may know"""

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        refused: InvalidInput | None = None
        for form in self._forms:
            try:
                scores = self._ask(form, query, texts)
            except InvalidInput as error:
                refused = refused or error
            else:
                self._forms = (form,)
                return scores
        assert refused is not None
        raise refused

    def close(self) -> None:
        self._http.close()

    def _ask(self, form: str, query: str, texts: Sequence[str]) -> list[float]:
        payload: dict[str, Any] = {"query": query, form: list(texts)}
        if form == "documents":
            payload["top_n"] = len(texts)
            if self._model:
                payload["model"] = self._model
        else:
            payload["truncate"] = True  # otherwise it refuses long texts
        reply = self._http.post("", payload)
        content = self._http.checked(reply, _message(reply), (dict, list))
        return _scores(content, len(texts))


def _message(reply: Reply) -> str:
    """What the server says of an error, wherever it says it."""
    content = reply.content if isinstance(reply.content, dict) else {}
    error = content.get("error")
    inner = error.get("message") if isinstance(error, dict) else error
    said = inner or content.get("message") or content.get("detail")
    return said if isinstance(said, str) else ""


def _scores(content: Any, count: int) -> list[float]:
    """The scores in the order of the texts, whatever order they came in."""
    listed = content.get("results") if isinstance(content, dict) else content
    if not isinstance(listed, list) or len(listed) != count:
        given = f"{len(listed)} results" if isinstance(listed, list) else "no list of results"
        raise BadScores(f"it returned {given} for {count} texts")
    found: dict[int, float] = {}
    for result in listed:
        place = result.get("index") if isinstance(result, dict) else None
        if type(place) is not int or not 0 <= place < count:
            raise BadScores("it returned a result without the index of a text")
        found[place] = result.get("relevance_score", result.get("score"))
    if len(found) != count:
        raise BadScores("it returned two results for one text")
    return [found[place] for place in range(count)]
