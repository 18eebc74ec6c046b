"""How the provider answers: what is there, what it allows, and what goes wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

EVERY_CALL = "*"
"""a trigger: all calls, also those without texts, such as `GET /api/tags`"""
EVERY_TEXT = ""
"""a trigger: all calls with a text, since each contains it"""

OPENAI_MODELS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}
OLLAMA_MODELS = {"mxbai-embed-large": 1024, "nomic-embed-text": 768, "all-minilm": 384}

TELLS = ("retry-after", "retry-after-ms", "retry-after-date", "x-ratelimit")
USUAL_LIMITS = {"requests": 3000, "tokens": 1_000_000}
"""what the x-ratelimit headers name as the limits when none is set"""


@dataclass(frozen=True)
class Behaviour:
    """How the server answers. As it is made here, it does so at once and without a fault.

    A fault that is a text is a trigger: it strikes a call with a text that contains it (or
    `EVERY_TEXT`, or `EVERY_CALL`). Faults go together; when several would answer a call, the one
    that is further up here does. Lists of models meet only what `EVERY_CALL` brings.
    """

    # who is there
    down: bool = False
    """connects are refused, and connections and calls end; the port is kept for the return"""
    missing: tuple[str, ...] = ()
    """paths that this server does not know, such as an old Ollama's `/api/embed`"""
    key: str | None = None
    """the only API key that `/v1` takes; None: any, or none"""
    key_status: int = 401
    """what another key gets"""
    openai_models: Mapping[str, int] = field(default_factory=lambda: dict(OPENAI_MODELS))
    """names and native dimensions"""
    ollama_models: Mapping[str, int] = field(default_factory=lambda: dict(OLLAMA_MODELS))
    """the same; a name without a tag is `latest`"""
    context: int = 512
    """tokens that Ollama's models take of a text"""
    arrays: bool = True
    """whether `/api/embed` takes a list of texts; old servers answered 400"""
    base64: bool = True
    """whether `/v1/embeddings` knows `encoding_format`; not all that are like OpenAI do"""
    words: bool = False
    """texts that share words have vectors near each other, as of a model that understands them"""

    # what it allows
    proxy: str | None = None
    """an HTML page, as from a proxy whose server is away"""
    proxy_status: int = 502
    quota_used_up: bool = False
    """429 `insufficient_quota`, with no word about when to come back"""
    storm_until: float = 0.0
    """429 for every embedding call until this time of the server's clock"""
    requests: int | None = None
    """embedding calls in a window; more get 429"""
    tokens: int | None = None
    """the same for tokens"""
    window: float = 60.0
    """seconds; a window begins with the first call after the one before has ended"""
    tells: tuple[str, ...] = ("retry-after", "x-ratelimit")
    """what a 429 says of when to come back, out of `TELLS`"""
    slots: int | None = None
    """embedding calls that are served at once"""
    full_status: int | None = None
    """what a call beyond the slots gets, such as 429 or 503; None: it waits for its turn"""
    latency: float = 0.0
    """seconds in which an embedding call holds its slot"""

    # what goes wrong
    hang: str | None = None
    """no answer, until the client leaves or the server goes down"""
    fail: str | None = None
    """an error of the server's own"""
    fail_status: int = 500
    refuse: str | None = None
    """400: the service does not take this text, and does not say which one it means"""
    refuse_status: int = 400
    refuse_words: str | None = None
    """None: what the service says in such a case"""
    wrong_count: str | None = None
    """the last vector is left out"""
    wrong_dimensions: str | None = None
    """vectors of half the size, for these texts only"""
    nan: str | None = None
    """the first number is NaN, for these texts only"""
    zero: str | None = None
    """all numbers are zero, for these texts only"""
    shuffled: bool = False
    """OpenAI's vectors come back to front, each with its right `index`"""
    truncated: str | None = None
    """half the JSON, as if it were all"""
    cut: str | None = None
    """the connection ends in the middle of the body"""
    keeps: int | None = None
    """calls that a connection brings: the next one ends it, unanswered"""
    drip: str | None = None
    """the body comes byte by byte"""
    drip_seconds: float = 0.1
    """between two bytes"""

    def __post_init__(self) -> None:
        unknown = set(self.tells) - set(TELLS)
        if unknown:
            raise ValueError(f"a 429 cannot tell {', '.join(sorted(unknown))}")

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """With some fields changed, also as they come out of JSON."""
        unknown = set(changes) - {known.name for known in fields(self)}
        if unknown:
            raise ValueError(f"no such behaviour: {', '.join(sorted(unknown))}")
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in changes.items()
        }
        return replace(self, **given)

    def dump(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def hits(trigger: str | None, texts: Sequence[str]) -> bool:
    """Whether a fault strikes a call with these texts."""
    return trigger is not None and (trigger == EVERY_CALL or any(trigger in text for text in texts))
