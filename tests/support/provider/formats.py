"""The wire formats: what a call asks for, and how OpenAI and Ollama write their answers."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from support.provider.behaviour import Behaviour
from support.provider.vectors import as_bytes, count_tokens


class Complaint(Exception):
    """An answer other than 200, in the words of the service."""

    def __init__(
        self,
        status: int,
        message: str,
        type: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        wait: float | None = None,
        of: str = "requests",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.openai = {"message": message, "type": type, "param": param, "code": code}
        self.wait = wait
        """seconds until it is worth coming back, if that is known"""
        self.of = of
        """what there was too much of: requests or tokens"""


@dataclass(frozen=True)
class Asked:
    """An embedding call as it was understood."""

    model: str
    texts: list[str]
    taken: list[str]
    """what the model reads of each text"""
    tokens: int
    dimensions: int
    write: Callable[[list[tuple[int, str]], "Asked"], str]
    """makes the answer of places and vectors, these already in JSON"""
    in_base64: bool = False
    length: float = 1.0
    """of the vectors"""


def go_duration(seconds: float) -> str:
    """As the x-ratelimit headers have it: `120ms`, `1.5s`, `6m0s`."""
    milliseconds = round(seconds * 1000)
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    written = f"{rest / 1000:g}s"
    if hours:
        return f"{hours}h{minutes}m{written}"
    return f"{minutes}m{written}" if minutes else written


def _parsed(body: bytes, empty: str) -> dict[str, Any]:
    if not body:
        raise Complaint(400, empty)
    try:
        content = orjson.loads(body)
    except ValueError:
        content = _parsed_with_care(body)
    if not isinstance(content, dict):
        raise Complaint(400, "the body of the request is not an object")
    return content


def _parsed_with_care(body: bytes) -> Any:
    """What the quick reader refuses: lone surrogates, NaN, or what is wrong indeed."""
    try:
        return json.loads(body)
    except ValueError as error:
        raise Complaint(400, f"the body of the request is not JSON: {error}") from None


def ask_openai(body: bytes, behaviour: Behaviour) -> Asked:
    """`POST /v1/embeddings`."""
    content = _parsed(body, "you must provide a model parameter")
    model, wanted = content.get("model"), content.get("dimensions")
    form = content.get("encoding_format", "float")
    if not model:
        raise Complaint(400, "you must provide a model parameter")
    if model not in behaviour.openai_models:
        message = f"The model `{model}` does not exist or you do not have access to it."
        raise Complaint(404, message, code="model_not_found")
    if form not in ("float", "base64"):
        raise Complaint(400, f"Invalid encoding_format: {form}", param="encoding_format")
    native = behaviour.openai_models[model]
    if wanted is not None and model == "text-embedding-ada-002":
        raise Complaint(400, "This model does not support specifying dimensions.")
    if wanted is not None and not (type(wanted) is int and 1 <= wanted <= native):
        message = f"Invalid value for 'dimensions' = {wanted}. Must be between 1 and {native}."
        raise Complaint(400, message, param="dimensions")
    texts, tokens = _openai_input(content.get("input"))
    return Asked(model, texts, texts, tokens, wanted or native, _write_openai, form == "base64")


INVALID_INPUT = (
    "'$.input' is invalid. Please check the API reference: "
    "https://platform.openai.com/docs/api-reference."
)


def _openai_input(given: object) -> tuple[list[str], int]:
    """Texts and their tokens. Tokens in place of a text are taken for a text of their own."""
    inputs: list[Any]
    if isinstance(given, list) and not (given and all(type(token) is int for token in given)):
        inputs = given
    else:
        inputs = [given]
    if not 1 <= len(inputs) <= 2048:
        raise Complaint(400, INVALID_INPUT)
    texts, tokens = [], []
    for one in inputs:
        if not one:
            raise Complaint(400, INVALID_INPUT)  # it does not say which one is empty
        if isinstance(one, str):
            texts.append(one)
            tokens.append(count_tokens(one))
        elif isinstance(one, list) and all(type(token) is int for token in one):
            texts.append(f"tokens {json.dumps(one)}")
            tokens.append(len(one))
        else:
            raise Complaint(400, INVALID_INPUT)
    if max(tokens) > 8192:
        raise Complaint(400, "Invalid 'input': maximum context length is 8192 tokens.")
    if sum(tokens) > 300_000:
        message = f"Requested {sum(tokens)} tokens, max 300000 tokens per request"
        kind = "max_tokens_per_request"
        raise Complaint(400, message, type=kind, code=kind)
    return texts, sum(tokens)


def _write_openai(rows: list[tuple[int, str]], asked: Asked) -> str:
    data = [f'{{"object":"embedding","index":{at},"embedding":{row}}}' for at, row in rows]
    usage = f'{{"prompt_tokens":{asked.tokens},"total_tokens":{asked.tokens}}}'
    model = json.dumps(asked.model)
    return f'{{"object":"list","data":[{",".join(data)}],"model":{model},"usage":{usage}}}'


def ask_ollama(body: bytes, behaviour: Behaviour) -> Asked:
    """`POST /api/embed`."""
    content = _parsed(body, "missing request body")
    given = content.get("input")
    if isinstance(given, str):
        texts = [given] if given else []
    elif isinstance(given, list) and behaviour.arrays and all(isinstance(t, str) for t in given):
        texts = given
    elif given is None:
        texts = []
    else:
        raise Complaint(400, "invalid input type")
    model = str(content.get("model", ""))
    native = _ollama_dimensions(model, behaviour)
    if native is None:
        raise Complaint(404, f"model '{model}' not found")
    if content.get("truncate") is False and any(
        count_tokens(text) > behaviour.context for text in texts
    ):
        raise Complaint(400, "the input length exceeds the context length")
    wanted = content.get("dimensions") or 0
    dimensions = wanted if 0 < wanted < native else native
    taken = [_taken(text, behaviour.context) for text in texts]
    write = partial(_write_ollama, time.monotonic_ns())
    return Asked(model, texts, taken, sum(map(count_tokens, taken)), dimensions, write)


def _taken(text: str, context: int) -> str:
    """As much of a text as goes into so many tokens."""
    return as_bytes(text)[: 4 * context - 1].decode(errors="ignore")


def _write_ollama(began: int, rows: list[tuple[int, str]], asked: Asked) -> str:
    model, written = json.dumps(asked.model), ",".join(row for _, row in rows)
    if not asked.texts:
        return f'{{"model":{model},"embeddings":[]}}'
    took = time.monotonic_ns() - began
    return (
        f'{{"model":{model},"embeddings":[{written}],"total_duration":{took + 1},'
        f'"load_duration":{took // 10 + 1},"prompt_eval_count":{asked.tokens}}}'
    )


def ask_ollama_once(body: bytes, behaviour: Behaviour) -> Asked:
    """`POST /api/embeddings`, the older form; its vectors are not of unit length."""
    content = _parsed(body, "missing request body")
    model, prompt = str(content.get("model", "")), str(content.get("prompt") or "")
    if not model:
        raise Complaint(400, "model is required")
    native = _ollama_dimensions(model, behaviour)
    if native is None:
        raise Complaint(404, f'model "{model}" not found, try pulling it first')
    texts = [prompt] if prompt else []
    taken = [_taken(text, behaviour.context) for text in texts]
    tokens = sum(map(count_tokens, taken))
    return Asked(model, texts, taken, tokens, native, _write_ollama_once, length=16.0)


def _write_ollama_once(rows: list[tuple[int, str]], asked: Asked) -> str:
    return f'{{"embedding":{rows[0][1] if rows else "[]"}}}'


def _ollama_dimensions(model: str, behaviour: Behaviour) -> int | None:
    named = {_tagged(name): native for name, native in behaviour.ollama_models.items()}
    return named.get(_tagged(model))


def _tagged(name: str) -> str:
    return name if ":" in name else f"{name}:latest"


def list_openai(behaviour: Behaviour) -> object:
    """`GET /v1/models`."""
    models = [
        {"id": name, "object": "model", "created": 1705948997, "owned_by": "system"}
        for name in behaviour.openai_models
    ]
    return {"object": "list", "data": models}


def list_ollama(behaviour: Behaviour) -> object:
    """`GET /api/tags`."""
    details = {
        "parent_model": "", "format": "gguf", "family": "bert", "families": ["bert"],
        "parameter_size": "334M", "quantization_level": "F16",
    }  # fmt: skip
    models = [
        {
            "name": _tagged(name),
            "model": _tagged(name),
            "modified_at": "2026-05-10T08:06:48.639712648-07:00",
            "size": 669615493,
            "digest": hashlib.sha256(name.encode()).hexdigest(),
            "details": {**details, "embedding_length": dimensions},
        }
        for name, dimensions in behaviour.ollama_models.items()
    ]
    return {"models": models}


def tell_version(behaviour: Behaviour) -> object:
    """`GET /api/version`."""
    return {"version": "0.33.0" if behaviour.arrays else "0.1.26"}


LISTS = {
    "/v1/models": list_openai,
    "/api/tags": list_ollama,
    "/api/version": tell_version,
}
EMBEDS = {
    "/v1/embeddings": ask_openai,
    "/api/embed": ask_ollama,
    "/api/embeddings": ask_ollama_once,
}


ROUTES = {("GET", path) for path in LISTS} | {("POST", path) for path in EMBEDS}
