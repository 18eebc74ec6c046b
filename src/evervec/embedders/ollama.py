"""Ollama's embeddings, from a server on this machine or another."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import numpy as np

from evervec.embedders.base import Answer, BadAnswer
from evervec.embedders.http import Http, HttpEmbedder, Reply
from evervec.errors import EmbedderError, InvalidInput, RateLimited
from evervec.runtime.threads import Pool

DEFAULT_MODEL = "mxbai-embed-large"
_NATIVE = {
    "all-minilm": 384, "bge-large": 1024, "bge-m3": 1024, "mxbai-embed-large": 1024,
    "nomic-embed-text": 768, "snowflake-arctic-embed": 1024, "snowflake-arctic-embed2": 1024,
}  # fmt: skip
_SINGLE_CALLS = 4
_DETECTION_SECONDS = 2.0


class OllamaEmbedder(HttpEmbedder):
    """Calls `/api/embed` with many texts at once. If the server is too old for that, it sends
    single texts from then on, a few at a time."""

    name = "ollama"

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        url: str = "",
        characters: int = 2000,
        dimensions: int = 0,
        batch: int = 0,
        seconds: float = 60.0,
        query_seconds: float = 10.0,
    ) -> None:
        self.model = model or DEFAULT_MODEL
        self.max_batch = batch or 64
        self.characters = characters
        self._query_seconds = query_seconds
        self._http = Http("Ollama", address(url), seconds)
        self._asked = dimensions
        self._singly = False
        self._oldest = False  # the server only has /api/embeddings
        self._singles = Pool(_SINGLE_CALLS)
        self.dimensions = (
            dimensions or _NATIVE.get(self.model.partition(":")[0]) or self._ask_dimensions()
        )

    def ask_query(self, text: str) -> Answer:
        return self._call(cut(text, self.characters), self._query_seconds)

    def ask(self, texts: Sequence[str]) -> Answer:
        given = [cut(text, self.characters) for text in texts]
        if not self._singly:
            try:
                return self._call(given)
            except InvalidInput as error:
                if "invalid input type" not in str(error):
                    raise
                self._singly = True
        return self._one_by_one(given)

    def _one_by_one(self, texts: list[str]) -> Answer:
        answers = self._singles.map(self._tried, texts)
        refused = [i for i, answer in enumerate(answers) if isinstance(answer, InvalidInput)]
        for answer in answers:
            if isinstance(answer, EmbedderError) and not isinstance(answer, InvalidInput):
                raise answer
        if refused:  # if all are refused, the server may be at fault
            which = refused if len(refused) < len(texts) else ()
            raise InvalidInput(which, str(answers[refused[0]]))
        good = [answer for answer in answers if isinstance(answer, Answer)]
        return Answer(
            np.concatenate([answer.vectors for answer in good]),
            sum(answer.tokens for answer in good),
        )

    def _tried(self, text: str) -> Answer | EmbedderError:
        try:
            return self._call(text)
        except EmbedderError as error:
            return error

    def _call(self, given: str | list[str], seconds: float | None = None) -> Answer:
        oldest = self._oldest  # another call may set it in the meantime
        if oldest and isinstance(given, list):
            return self._one_by_one(given)
        reply = self._post(given, seconds, oldest)
        if reply.status == 404 and reply.content is None and not oldest:
            self._oldest = self._singly = True
            return self._call(given, seconds)
        said = _error(reply)
        if reply.status == 503:
            raise RateLimited(None, f"Ollama is busy: {said}")
        if reply.status == 404 and "not found" in said:
            said += f": download it with `ollama pull {self.model}`"
        content = self._http.checked(reply, said)
        try:
            made = [content["embedding"]] if oldest else content["embeddings"]
            vectors = np.asarray(made, np.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise BadAnswer(f"invalid response from Ollama: {error!r}") from None
        tokens = content.get("prompt_eval_count")
        return Answer(vectors, tokens if isinstance(tokens, int) else 0)

    def _post(self, given: str | list[str], seconds: float | None, oldest: bool) -> Reply:
        if oldest:
            payload = {"model": self.model, "prompt": given}
            return self._http.post("/api/embeddings", payload, seconds)
        more = {"dimensions": self._asked} if self._asked else {}
        return self._http.post("/api/embed", {"model": self.model, "input": given, **more}, seconds)


def answers(url: str) -> str | None:
    """Why no Ollama server answers there; None if one does."""
    try:
        with closing(Http("Ollama", address(url), _DETECTION_SECONDS)) as http:
            reply = http.get("/api/tags")
    except EmbedderError as error:
        return str(error)
    if reply.status != 200 or not isinstance(reply.content, dict):
        return f"the server at {http.url} is not Ollama (status {reply.status})"
    return None


def address(host: str) -> str:
    """The URL that `OLLAMA_HOST` means: `host`, `host:port` or a URL. `0.0.0.0` becomes
    `127.0.0.1`."""
    host = host.strip()
    if "://" not in host:
        place, slash, path = host.partition("/")
        name, colon, port = place.rpartition(":")
        if not colon or not port.isdecimal():
            name, port = place, "11434"
        host = f"http://{name or '127.0.0.1'}:{port}{slash}{path}"
    return host.replace("//0.0.0.0", "//127.0.0.1")


def cut(text: str, characters: int) -> str:
    """The beginning of a text, ending at a word."""
    if len(text) <= characters:
        return text
    head = text[: characters + 1]
    space = max(head.rfind(" "), head.rfind("\n"))
    return head[:space] if space > characters // 2 else text[:characters]


def _error(reply: Reply) -> str:
    return str(reply.content.get("error") or "") if isinstance(reply.content, dict) else ""
