"""The port to whatever makes vectors, and how its answers and failures are read.

An embedder says whose fault a failure is by what it raises: `ProviderUnavailable`
and `RateLimited` are nobody's, `InvalidInput` with positions is some texts'. Anything
else, and any answer that cannot be right, could be either's: a probe with a known good
text tells. If the probe fails too, it is an outage; if it passes, the batch is halved
until the texts that break it stand alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from evervec.errors import (
    EmbedderError,
    EvervecError,
    InvalidInput,
    ProviderUnavailable,
    RateLimited,
)
from evervec.model.records import ModelSpec

if TYPE_CHECKING:
    from numpy.typing import NDArray

PROBE = "evervec probe"


@runtime_checkable
class Embedder(Protocol):
    """Makes vectors of texts; may be called from several threads.

    It may also have `embed_query(text)` for models that treat questions differently,
    `version`, the name of the embedding version that it makes, `window`, the tokens of a text
    that it looks at, or `characters` where it cuts by those, `count_tokens(text)`,
    `max_tokens`, what one call may hold, and `ask(texts)`, which gives an `Answer`: `embed`
    with what it cost.
    """

    name: str
    model: str
    dimensions: int
    max_batch: int

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row a text. Raises `ProviderUnavailable`, `RateLimited` or `InvalidInput`."""
        ...


@dataclass(slots=True)
class Answer:
    """What a provider gave to one call."""

    vectors: NDArray[np.float32]
    tokens: int = 0
    """that it counted; 0 when it does not say"""
    pause: float = 0.0
    """seconds for which it should be left alone, because its limits are reached"""


class BadAnswer(EmbedderError):
    """The embedding provider gave an answer that cannot be right."""


@dataclass(slots=True)
class Embedded:
    """Unit vectors, one row a text; the rows of `errors` hold nothing."""

    vectors: NDArray[np.float32]
    errors: dict[int, Exception] = field(default_factory=dict)
    calls: int = 0
    tokens: int = 0
    pause: float = 0.0


def spec_of(embedder: Embedder) -> ModelSpec | None:
    """What names an embedder's vectors; None for one that makes none."""
    if embedder.dimensions == 0:
        return None
    given = getattr(embedder, "version", None)
    name = given or re.sub(r"[^a-z0-9]+", "-", embedder.model.lower()).strip("-") or embedder.name
    return ModelSpec(name, embedder.name, embedder.model, embedder.dimensions)


def embed(embedder: Embedder, texts: Sequence[str]) -> Embedded:
    """Vectors of texts, with the texts that fail by themselves set apart.

    Raises `ProviderUnavailable` or `RateLimited` when it is nobody's fault.
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
            if not probed or len(places) == 1:  # the provider may have gone meanwhile
                _probe(embedder, error, answer)
                probed = True
            if len(places) == 1:
                answer.errors[places[0]] = error
            else:
                todo += _halves(places)
        else:
            good = _usable(rows)
            if len(places) == len(texts) and good.all():  # as nearly always: copy nothing
                answer.vectors = rows
                continue
            answer.vectors[[i for i, g in zip(places, good, strict=True) if g]] = rows[good]
            bad = [i for i, g in zip(places, good, strict=True) if not g]
            if bad and len(places) == 1:
                wrong = BadAnswer("the provider answered with a vector that is zero or not finite")
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
    """The tokens of a text by the embedder's own count; else on the safe side: a token for
    every three letters of English, and for every character where there are no spaces."""
    count = getattr(embedder, "count_tokens", None)
    if count is not None:
        with suppress(Exception):  # what it cannot count it may embed all the same
            return int(count(text))
    return len(text) // 3 + 1 if text.isascii() else len(text.encode()) // 3 + 1


def _halves(places: list[int]) -> list[list[int]]:
    middle = len(places) // 2
    return [places[middle:], places[:middle]]


def embed_query(embedder: Embedder, text: str) -> NDArray[np.float32]:
    """The unit vector of a question."""
    special = getattr(embedder, "embed_query", None)
    answer = embedder.embed([text]) if special is None else special(text)
    vector = np.asarray(answer, np.float32)
    if vector.ndim != 1:
        vector = vector.reshape(-1)
    if len(vector) != embedder.dimensions:
        raise BadAnswer(
            f"the provider answered a query with {len(vector)} numbers instead of "
            f"{embedder.dimensions}: check the model"
        )
    length = math.sqrt(vector.dot(vector))
    if not 0 < length < math.inf:
        raise BadAnswer("the provider answered a query with a vector that is zero or not finite")
    unit: NDArray[np.float32] = vector / length
    return unit


def _ask(embedder: Embedder, texts: list[str], total: Embedded) -> NDArray[np.float32]:
    """One call; what it cost is added to the total."""
    total.calls += 1
    ask = getattr(embedder, "ask", None)
    try:
        given = Answer(embedder.embed(texts)) if ask is None else ask(texts)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:  # such as SystemExit, or asyncio's CancelledError
        raise RuntimeError(f"the embedder raised {error!r}") from error
    total.tokens += given.tokens
    total.pause = max(total.pause, given.pause)
    return _checked(given.vectors, len(texts), embedder)


def _checked(answer: object, count: int, embedder: Embedder) -> NDArray[np.float32]:
    """Rows of unit length, of the right number and size."""
    rows = np.asarray(answer, np.float32)
    if rows.ndim != 2 or len(rows) != count:
        shape = "x".join(map(str, rows.shape))
        raise BadAnswer(
            f"the provider answered {count} texts with an array of {shape or 'nothing'}"
        )
    if rows.shape[1] != embedder.dimensions:
        raise BadAnswer(
            f"the provider answered with {rows.shape[1]} dimensions instead of "
            f"{embedder.dimensions}: check the model"
        )
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(rows / lengths[:, None], np.float32)


def _usable(rows: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which rows are finite and not zero; a zero row became NaN when it was normalised."""
    return np.asarray(np.isfinite(rows).all(axis=1), np.bool_)


def _probe(embedder: Embedder, cause: Exception, total: Embedded) -> None:
    """Raise `ProviderUnavailable` if the provider cannot even embed a known good text."""
    try:
        sound = bool(_usable(_ask(embedder, [PROBE], total))[0])
        trouble: Exception = BadAnswer()
    except (ProviderUnavailable, RateLimited):
        raise
    except Exception as error:  # noqa: BLE001 - a good text failed: provider error
        sound, trouble = False, error
    if not sound:
        raise ProviderUnavailable(
            f"{embedder.name} cannot embed even a plain text: {describe(trouble)}"
        ) from cause


def describe(error: BaseException) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    if isinstance(error, EvervecError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
