"""Vectors of a query that were made before the search that uses them.

An asynchronous search embeds its query in other threads than those of the store, so that a slow
provider delays no other call. The search then finds the vectors here, in its context.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Vectors: TypeAlias = "Mapping[tuple[object, str], NDArray[np.float32] | Exception]"
"""by provider and text; the error where it could not be made"""

_prepared: ContextVar[Vectors | None] = ContextVar("evervec_prepared", default=None)


@contextmanager
def using(vectors: Vectors) -> Iterator[None]:
    """Use these vectors inside the block."""
    token = _prepared.set(vectors)
    try:
        yield
    finally:
        _prepared.reset(token)


def prepared(provider: object, text: str) -> NDArray[np.float32] | None:
    """The vector that was made before; None if there is none. Raises the error that its making
    met."""
    made = _prepared.get()
    found = None if made is None else made.get((provider, text))
    if isinstance(found, Exception):
        raise found
    return found
