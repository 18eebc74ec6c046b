"""The port to embedding models, and how their answers and failures are classified.

The exception of an embedder says what failed: `ProviderUnavailable` and `RateLimited` concern the
provider, `InvalidInput` with positions concerns those texts. Any other exception, and any invalid
answer, triggers a probe with a known good text. If the probe fails too, it is an outage; if it
passes, the batch is bisected to find the bad texts.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from evervec.errors import (
    EmbedderError,
    EvervecError,
    InvalidInput,
    ProviderUnavailable,
    RateLimited,
)
from evervec.model.deadlines import exceeded, interrupting
from evervec.model.records import ModelSpec
from evervec.runtime.coroutines import LOOP

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PROBE = "evervec probe"


@runtime_checkable
class Embedder(Protocol):
    """Makes vectors of texts; may be called from several threads.

    Optional members: `embed_query(text)` for models that treat queries differently, or
    `ask_query(text)`, which returns an `Answer` with the cost; `version`, the
    name of the embedding version that it makes; `window`, the tokens of a text that it reads, or
    `characters` if it cuts by those; `count_tokens(text)`; `count_all_tokens(texts)`, if many are
    counted faster at once; `max_tokens`, the most that one call may hold; `max_calls`, the most calls at once, for a model that gains nothing by more; and `ask(texts)`, which returns an `Answer`: the vectors with their cost.
    """

    name: str
    model: str
    dimensions: int
    max_batch: int

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row per text. Raises `ProviderUnavailable`, `RateLimited` or `InvalidInput`."""
        ...


class AsyncEmbedder(Protocol):
    """An `Embedder` whose `embed`, and `embed_query` and `ask` if it has them, may be coroutine
    functions. The coroutines of all embedders run in one event loop, in a thread of its own that
    ends when the last store is closed."""

    name: str
    model: str
    dimensions: int
    max_batch: int

    def embed(self, texts: Sequence[str]) -> Coroutine[Any, Any, NDArray[np.float32]]: ...


@dataclass(slots=True)
class Answer:
    """A provider's answer to one call."""

    vectors: NDArray[np.float32]
    tokens: int = 0
    """as counted by the provider; 0 if it does not say"""
    pause: float = 0.0
    """seconds to wait before the next call, because the provider's limits are reached"""


class BadAnswer(EmbedderError):
    """The embedding provider gave an answer that cannot be right."""


@dataclass(slots=True)
class Embedded:
    """Unit vectors, one row per text; the rows of `errors` are empty."""

    vectors: NDArray[np.float32]
    errors: dict[int, Exception] = field(default_factory=dict)
    calls: int = 0
    tokens: int = 0
    pause: float = 0.0


def spec_of(embedder: Embedder) -> ModelSpec | None:
    """The specification of an embedder's vectors; None if it makes none."""
    if embedder.dimensions == 0:
        return None
    given = getattr(embedder, "version", None)
    name = given or re.sub(r"[^a-z0-9]+", "-", embedder.model.lower()).strip("-") or embedder.name
    return ModelSpec(name, embedder.name, embedder.model, embedder.dimensions)


def embed(embedder: Embedder, texts: Sequence[str]) -> Embedded:
    """Embed texts; the errors of single texts are in `errors`.

    Raises `ProviderUnavailable` or `RateLimited` if the texts are not the cause.
    """
    answer = Embedded(np.zeros((len(texts), embedder.dimensions), np.float32))
    todo = [list(range(len(texts)))]
    probed = False
    while todo:
        places = todo.pop()
        try:
            rows = _ask(embedder, [texts[i] for i in places], answer)
        except (ProviderUnavailable, RateLimited) as error:
            error.calls, error.tokens = answer.calls, answer.tokens
            raise
        except Exception as error:  # noqa: BLE001 - must not stop the other texts
            refused = _refused(error, places)
            if refused:
                answer.errors.update(dict.fromkeys(refused, error))
                rest = [i for i in places if i not in refused]
                todo += [rest] if rest else []
                continue
            if not probed or len(places) == 1:  # the provider may have failed in the meantime
                _probe(embedder, error, answer)
                probed = True
            if len(places) == 1:
                answer.errors[places[0]] = error
            else:
                middle = len(places) // 2
                todo += [places[middle:], places[:middle]]
        else:
            good = _usable(rows)
            if len(places) == len(texts) and good.all():  # nearly always: avoid the copy
                answer.vectors = rows
                continue
            answer.vectors[[i for i, g in zip(places, good, strict=True) if g]] = rows[good]
            bad = [i for i, g in zip(places, good, strict=True) if not g]
            if bad and len(places) == 1:
                wrong = BadAnswer("the provider returned a vector that is zero or not finite")
                _probe(embedder, wrong, answer)
                answer.errors[bad[0]] = wrong
            else:
                todo += [[i] for i in bad]
    return answer


def _refused(error: Exception, places: list[int]) -> set[int]:
    """The texts that the provider itself named as the cause."""
    named = error.positions if isinstance(error, InvalidInput) else ()
    return {places[p] for p in named if 0 <= p < len(places)}


def count_tokens(embedder: Embedder, text: str) -> int:
    """The tokens of a text by the embedder's count, otherwise by an estimate."""
    count = getattr(embedder, "count_tokens", None)
    if count is not None:
        with suppress(Exception):  # a text that it cannot count may still be embedded
            return int(count(text))
    return estimate_tokens(text)


def estimate_tokens(text: str) -> int:
    """Rather too many than too few: one token per three bytes, so one per character in scripts
    without spaces."""
    return len(text) // 3 + 1 if text.isascii() else len(text.encode()) // 3 + 1


def embed_query(embedder: Embedder, text: str) -> NDArray[np.float32]:
    """The unit vector of a query."""
    return ask_query(embedder, text).vectors


def ask_query(embedder: Embedder, text: str) -> Answer:
    """The unit vector of a query, with its cost if the embedder has one."""
    answer = _ask_query(embedder, text)
    vector = np.asarray(answer.vectors, np.float32)
    if vector.ndim != 1:
        vector = vector.reshape(-1)
    if len(vector) != embedder.dimensions:
        raise BadAnswer(
            f"the provider returned a query vector with {len(vector)} dimensions instead of "
            f"{embedder.dimensions}: check the model"
        )
    length = math.sqrt(vector.dot(vector))
    if not 0 < length < math.inf:
        raise BadAnswer("the provider returned a query vector that is zero or not finite")
    answer.vectors = vector / length
    return answer


def _ask_query(embedder: Any, text: str) -> Answer:
    if hasattr(embedder, "ask_query"):
        made: Answer = ended(embedder.ask_query(text))
    elif hasattr(embedder, "embed_query"):
        made = Answer(ended(embedder.embed_query(text)))
        if tells_cost(embedder):
            made.tokens = count_tokens(embedder, text)
    elif tells_cost(embedder):
        made = ended(embedder.ask([text]))
    else:
        made = Answer(ended(embedder.embed([text])))
    return made


def tells_cost(embedder: object) -> bool:
    """Whether an embedder says what its calls cost."""
    return hasattr(embedder, "ask")


def _ask(embedder: Embedder, texts: list[str], total: Embedded) -> NDArray[np.float32]:
    """Make one call and add its cost to the total."""
    total.calls += 1
    ask = getattr(embedder, "ask", None)
    try:
        given = Answer(ended(embedder.embed(texts))) if ask is None else ended(ask(texts))
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:  # such as SystemExit, or asyncio's CancelledError
        raise RuntimeError(f"the embedder raised {error!r}") from error
    total.tokens += given.tokens
    total.pause = max(total.pause, given.pause)
    return _checked(given.vectors, len(texts), embedder)


def ended(made: Any) -> Any:
    """What an embedder or reranker returned; if that is a coroutine, its result."""
    if not inspect.isawaitable(made):
        return made
    ending = LOOP.submit(made)
    try:
        with interrupting(ending.cancel):
            return ending.result()
    except CancelledError:
        raise exceeded() or RuntimeError("its coroutine was cancelled") from None


def is_remote(embedder: object) -> bool:
    """Whether calls of an embedder wait for another process more than they compute: those that tell
    their cost, and coroutines."""
    return tells_cost(embedder) or inspect.iscoroutinefunction(getattr(embedder, "embed", None))


def _checked(answer: object, count: int, embedder: Embedder) -> NDArray[np.float32]:
    """Check the number and size of the rows, and normalise them."""
    rows = np.asarray(answer, np.float32)
    if rows.ndim != 2 or len(rows) != count:
        shape = "x".join(map(str, rows.shape))
        raise BadAnswer(
            f"the provider returned an array of shape {shape or 'nothing'} for {count} texts"
        )
    if rows.shape[1] != embedder.dimensions:
        raise BadAnswer(
            f"the provider returned vectors with {rows.shape[1]} dimensions instead of "
            f"{embedder.dimensions}: check the model"
        )
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(rows / lengths[:, None], np.float32)


def _usable(rows: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which rows are finite and not zero; a zero row became NaN when it was normalised."""
    return np.asarray(np.isfinite(rows).all(axis=1), np.bool_)


def _probe(embedder: Embedder, cause: Exception, total: Embedded) -> None:
    """Raise `ProviderUnavailable` if the provider cannot embed a known good text."""
    try:
        sound = bool(_usable(_ask(embedder, [PROBE], total))[0])
        failure: Exception = BadAnswer()
    except (ProviderUnavailable, RateLimited):
        raise
    except Exception as error:  # noqa: BLE001 - a good text failed: provider error
        sound, failure = False, error
    if not sound:
        raise ProviderUnavailable(
            f"{embedder.name} failed to embed a known good text: {describe(failure)}"
        ) from cause


def describe(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    if isinstance(error, EvervecError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class NoopEmbedder:
    """Makes no vectors, not even zero vectors."""

    name = "noop"
    model = ""
    dimensions = 0
    max_batch = 1

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        raise ProviderUnavailable(
            "this store was opened without an embedder, so nothing is embedded: "
            "open it with embedder=…"
        )
