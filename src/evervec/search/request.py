"""A search as a caller asks for it, checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from evervec.errors import InvalidArgument
from evervec.model.bounds import check_bound, check_whole, shown
from evervec.model.filters import Conditions, read_filter
from evervec.records.drafts import check_name, check_text
from evervec.settings import Settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODES = ("hybrid", "semantic", "text")
FIELDS = frozenset({"title", "text", "metadata", "data"})
"""the parts of a hit that `fields` can leave out"""
_MOST_KINDS = 32
_MOST_DIMENSIONS = 65_536


@dataclass(frozen=True, slots=True)
class Request:
    """The checked arguments of a search; the facade's `search` describes them."""

    query: str | None
    vector: NDArray[np.float32] | None
    k: int
    kinds: tuple[str, ...] | None
    mode: str
    conditions: Conditions
    explain: bool
    min_similarity: float | None
    min_relevance: float | None
    offset: int
    group_by: str | None
    groups: int
    diversity: float | None
    fields: frozenset[str]
    rerank: Any = None
    """as the caller gave it; see `search.reranker`"""
    version: str | None = None
    """the name of the embedding version to search; None: the serving ones"""

    @property
    def width(self) -> int:
        """How many hits to return."""
        return self.k * self.groups if self.group_by is not None else self.k

    @property
    def end(self) -> int:
        """How many hits to rank: those before the offset too."""
        return self.offset + self.width

    @property
    def has_threshold(self) -> bool:
        return self.min_relevance is not None or self.min_similarity is not None

    def reaches(self, relevance: float, similarity: float | None) -> bool:
        """Whether a record reaches the thresholds; one without vectors reaches no similarity."""
        least, nearest = self.min_relevance, self.min_similarity
        return (least is None or relevance >= least) and (
            nearest is None or (similarity is not None and similarity >= nearest)
        )


def read_request(
    settings: Settings,
    query: Any,
    k: Any,
    *,
    vector: Any = None,
    kind: Any = None,
    mode: Any = "hybrid",
    filter: Mapping[str, Any] | None = None,
    explain: bool = False,
    min_similarity: Any = None,
    min_relevance: Any = None,
    offset: Any = 0,
    group_by: Any = None,
    groups: Any = 10,
    diversity: Any = None,
    fields: Any = None,
    rerank: Any = None,
    version: Any = None,
) -> Request:
    """Check the arguments of a search; raises `InvalidArgument`, which names the argument."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InvalidArgument(f"k must be a whole number of at least 1, not {shown(k)}")
    if mode not in MODES:
        raise InvalidArgument(f"unknown mode {shown(mode)}; choose one of {', '.join(MODES)}")
    check_whole("offset", offset, 0, settings.most_hits)
    if group_by is not None:
        check_name("group_by", group_by)
        check_whole("groups", groups, 1, settings.most_hits)
        if offset:
            raise InvalidArgument("group_by returns all groups at once: leave out offset")
    request = Request(
        _query(query, mode, settings, is_needed=vector is None),
        None if vector is None else _vector(vector, mode),
        k,
        _kinds(kind),
        "semantic" if query is None else mode,
        read_filter(filter, settings),
        bool(explain),
        _threshold("min_similarity", min_similarity, mode),
        _number("min_relevance", min_relevance),
        offset,
        group_by,
        groups,
        _share("diversity", diversity, mode),
        FIELDS if fields is None else _fields(fields),
        _rerank(rerank, query),
        None if version is None else _version(version, mode),
    )
    check_bound(settings, "most_hits", request.end, "k: requests {} hits")
    return request


def _query(query: Any, mode: str, settings: Settings, *, is_needed: bool) -> str | None:
    if query is None:
        if is_needed:
            raise InvalidArgument("a search needs a query or a vector")
        if mode == "text":
            raise InvalidArgument("mode 'text' needs a query")
        return None
    try:
        text = check_text("query", query)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
    check_bound(settings, "query_chars", len(text), "query: has {} characters")
    return text


def _vector(given: Any, mode: str) -> NDArray[np.float32]:
    import numpy as np

    if mode == "text":
        raise InvalidArgument("mode 'text' searches by words only: leave out the vector")
    try:
        numbers = np.asarray(given)
    except ValueError:  # lists of different lengths
        numbers = np.empty((0, 0))
    if (
        numbers.dtype.kind not in "fiu"
        or numbers.ndim != 1
        or not 1 <= len(numbers) <= _MOST_DIMENSIONS
    ):
        raise InvalidArgument("vector must be a list of numbers")
    with np.errstate(over="ignore"):  # what is too large is refused below
        vector = numbers.astype(np.float32)
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if not math.isfinite(length) or length == 0.0:
        raise InvalidArgument("vector must have finite numbers, not all of them 0")
    unit: NDArray[np.float32] = (vector / length).astype(np.float32)
    return unit


def _kinds(given: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    kinds = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else given
    found = tuple(dict.fromkeys(check_name("kind", kind) for kind in kinds))
    if not found or len(found) > _MOST_KINDS:
        raise InvalidArgument(f"kind must be a kind, or a list of 1 to {_MOST_KINDS} kinds")
    return found


def _number(what: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise InvalidArgument(f"{what} must be a number, not {shown(value)}")
    return float(value)


def _threshold(what: str, value: Any, mode: str) -> float | None:
    if value is not None and mode == "text":
        raise InvalidArgument(f"{what} needs vectors: use mode 'hybrid' or 'semantic'")
    return _number(what, value)


def _share(what: str, value: Any, mode: str) -> float | None:
    share = _threshold(what, value, mode)
    if share is not None and not 0.0 <= share <= 1.0:
        raise InvalidArgument(f"{what} must be a number from 0 to 1, not {shown(value)}")
    return share


def _rerank(given: Any, query: Any) -> Any:
    """A default reranker has nothing to compare texts with in a search by vector alone."""
    if query is None and given is not None and given is not False:
        raise InvalidArgument("rerank needs a query: texts are compared with its words")
    return False if query is None else given


def _version(given: Any, mode: str) -> str:
    if mode == "text":
        raise InvalidArgument("version needs vectors: use mode 'hybrid' or 'semantic'")
    return check_name("version", given)


def _fields(given: Any) -> frozenset[str]:
    listed = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    for name in listed:
        if not isinstance(name, str) or name not in FIELDS:
            raise InvalidArgument(
                f"fields: a hit has no part {shown(name)}; choose from {', '.join(sorted(FIELDS))}"
            )
    return frozenset(listed)
