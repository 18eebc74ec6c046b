"""Points and changes made by hand, for tests of an index."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evervec.chunking import hash_text
from evervec.model.records import Change, Point
from support.world import KIND, ScriptedEmbedder

_EMBEDDER = ScriptedEmbedder()


def vector(words: str) -> NDArray[np.float32]:
    """The unit vector of some words."""
    row: NDArray[np.float32] = _EMBEDDER.embed([words])[0]
    return row


def change(
    version: int,
    record: int,
    seq: int,
    words: Sequence[str] = (),
    kept: Sequence[str] = (),
    tenant: str = "default",
) -> Change:
    """What makes a record have just these points; none: it is removed."""
    points = [Point(hash_text(w), place, w, vector(w)) for place, w in enumerate(words)]
    return Change(
        record, version, tenant, KIND, str(record), seq, points,
        {hash_text(w): len(points) + place for place, w in enumerate(kept)},
    )  # fmt: skip
