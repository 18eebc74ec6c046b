"""OpenAI's embeddings, and any server with a compatible API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pybase64
from numpy.typing import NDArray

from evervec.embedders.base import Answer, BadAnswer
from evervec.embedders.http import Http, HttpEmbedder, Reply, limit_pause
from evervec.errors import ProviderUnavailable

DEFAULT_MODEL = "text-embedding-3-small"
DEFAULT_DIMENSIONS = 1024
_NATIVE = {"text-embedding-ada-002": 1536}


class OpenAIEmbedder(HttpEmbedder):
    """Calls `/embeddings`; with `dimensions` 0, the server says how many the model has."""

    name = "openai"

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        url: str = "https://api.openai.com/v1",
        key: str = "",
        dimensions: int = 0,
        batch: int = 0,
        seconds: float = 60.0,
        query_seconds: float = 10.0,
    ) -> None:
        self.model = model or DEFAULT_MODEL
        self.max_batch = min(batch or 2048, 2048)
        self.max_tokens = 300_000
        self._query_seconds = query_seconds
        self._http = Http(
            "OpenAI" if "api.openai.com" in url else "the provider", url, seconds, key
        )
        shortened = self.model.startswith("text-embedding-3")
        self._asked = dimensions or (DEFAULT_DIMENSIONS if shortened else 0)
        self._sends_dimensions = shortened
        self.dimensions = self._asked or _NATIVE.get(self.model) or self._ask_dimensions()

    def ask_query(self, text: str) -> Answer:
        return self._ask([text], self._query_seconds)

    def ask(self, texts: Sequence[str]) -> Answer:
        return self._ask(texts, None)

    def _ask(self, texts: Sequence[str], seconds: float | None) -> Answer:
        payload: dict[str, Any] = {
            "model": self.model, "input": list(texts), "encoding_format": "base64",
        }  # fmt: skip
        if self._sends_dimensions:
            payload["dimensions"] = self._asked
        reply = self._http.post("/embeddings", payload, seconds)
        error = _error(reply)
        if reply.status == 429 and "insufficient_quota" in (error.get("type"), error.get("code")):
            raise ProviderUnavailable(
                "OpenAI's quota for this key is used up: see OpenAI's billing page"
            )
        content = self._http.checked(reply, str(error.get("message") or ""))
        usage = content.get("usage")
        tokens = usage.get("total_tokens") if isinstance(usage, dict) else 0
        return Answer(
            _vectors(content.get("data"), len(texts)),
            tokens if isinstance(tokens, int) else 0,
            limit_pause(reply.headers),
        )


def _error(reply: Reply) -> dict[str, Any]:
    """The `error` member; some compatible servers have a string there."""
    error = reply.content.get("error") if isinstance(reply.content, dict) else None
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else {}


def _vectors(data: Any, count: int) -> NDArray[np.float32]:
    """Rows in the order of the texts, whatever order they came in."""
    try:
        found = {item["index"]: item["embedding"] for item in data}
        if len(data) != count or found.keys() != set(range(count)):
            raise BadAnswer(f"the provider returned {len(data)} vectors for {count} texts")
        return _read([found[place] for place in range(count)])
    except (KeyError, TypeError, ValueError) as error:
        raise BadAnswer(f"invalid response from the provider: {error!r}") from None


def _read(rows: list[Any]) -> NDArray[np.float32]:
    """Decode base64 of little-endian floats, or plain numbers from servers without base64. For 64
    vectors of 1024 dimensions pybase64 takes 0.04 ms, and the standard library 0.8 ms."""
    if not all(isinstance(row, str) for row in rows):
        return np.asarray(rows, np.float32)
    read = [pybase64.b64decode(row, validate=True) for row in rows]
    if len({len(row) for row in read}) > 1:
        raise ValueError("vectors of different lengths")
    return np.frombuffer(b"".join(read), "<f4").reshape(len(rows), -1)
