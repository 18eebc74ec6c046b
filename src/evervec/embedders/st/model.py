"""A model on the devices of this process.

Texts are ordered by length and tokenised some hundred at a time, while devices run the batches
made of those before. A batch is as many texts as have about `batch_tokens` tokens together.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evervec.embedders.base import describe
from evervec.embedders.encoder import pack
from evervec.embedders.st.lanes import Lanes, Rows
from evervec.embedders.st.replica import Loaded, load
from evervec.embedders.st.wanted import Wanted
from evervec.errors import EvervecError, ProviderUnavailable, SettingsError

_MOST_TEXTS = 1024
"""texts of a batch, however short"""
_FIRST_SLICE, _SLICE = 64, 1024
"""texts that are tokenised together: few at first, so that the devices begin soon"""


class Model:
    """A loaded model; may be called from several threads."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self.loaded = _load(wanted)
        self.lanes = Lanes(self.loaded.replicas)
        self.dimensions = self.loaded.dimensions
        self._tokenizing = threading.Lock()
        """a tokenizer uses all processors by itself"""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row for each text."""
        rows = np.empty((len(texts), self.dimensions), np.float32)
        waiting: deque[tuple[list[int], Future[Rows]]] = deque()
        for places, batch in self.batches(texts):
            if len(waiting) >= self.lanes.room:
                done, future = waiting.popleft()
                rows[done] = future.result()
            waiting.append((places, self.lanes.submit(batch)))
        for done, future in waiting:
            rows[done] = future.result()
        return rows

    def embed_query(self, text: str) -> NDArray[np.float32]:
        query = self.loaded.tokenize([text], self._wanted.query_prompt)
        row: NDArray[np.float32] = self.lanes.submit(query, urgent=True).result()[0]
        return row

    def close(self) -> None:
        """End the threads of the devices."""
        self.lanes.close()

    def batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], Any]]:
        """Places and tokens of texts of similar length, the longest first: a device that cannot
        hold a batch finds out at once."""
        order = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
        start, size = 0, _FIRST_SLICE
        places: list[int] = []
        made: list[Any] = []
        while start < len(order):
            taken = order[start : start + size]
            start, size = start + size, min(2 * size, _SLICE)
            places += taken
            with self._tokenizing:
                made += self.loaded.tokenize(
                    [texts[place] for place in taken], self._wanted.text_prompt
                )
            grid = self.loaded.grid
            lengths = [grid.padded(1, len(text))[1] for text in made]
            packed = pack(lengths, _MOST_TEXTS, self._wanted.batch_tokens, grid.texts)
            # the last one may have room for more; that of the first texts runs at once
            runs_all = start == len(taken) or start >= len(order)
            whole = packed if runs_all else packed[:-1]
            for batch in whole:
                yield [places[at] for at in batch], [made[at] for at in batch]
            rest = packed[len(whole) :]
            places = [places[at] for batch in rest for at in batch]
            made = [made[at] for batch in rest for at in batch]


def _load(wanted: Wanted) -> Loaded:
    try:
        return load(
            wanted.source, revision=wanted.revision, device=wanted.device,
            precision=wanted.precision, dimensions=wanted.dimensions,
            prompts=[wanted.text_prompt, wanted.query_prompt], code=wanted.remote_code,
        )  # fmt: skip
    except EvervecError:
        raise
    except Exception as error:  # sentence-transformers and torch have no common error class
        if wanted.is_folder:
            raise SettingsError(
                f"the model in {wanted.source} cannot be loaded: {describe(error)}"
            ) from error
        raise ProviderUnavailable(
            f"{wanted.name} cannot be loaded ({describe(error)}): let this machine reach "
            "huggingface.co once, or give a folder with the model"
        ) from error
