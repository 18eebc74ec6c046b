"""No embedder: jobs wait, text search answers, and a later start with an embedder embeds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evervec.errors import ProviderUnavailable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
