"""Vectors in one byte a number, to find the few that have to be compared exactly.

A search over many vectors takes as long as memory needs to deliver them. So each is kept a second
time with its numbers rounded to 255 steps, in a quarter of the memory. It is known how far that is
from the vectors themselves, and so by how much a score of rounded ones can be off. Only those that
may be among the best are compared exactly: what is found is the same as without.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = tuple[NDArray[np.int8], NDArray[np.float32], float]
"""of each vector its rounded numbers and the size of a step; of all, the largest length of what was
rounded off"""

_STEPS = 127
_SLOP = 1e-5
"""for sums of 32-bit numbers, by which scores differ with the order of adding"""

simsimd: Any
try:
    import simsimd
except ImportError:  # no wheel for this machine: everything is compared exactly
    simsimd = None


def rounded(vectors: NDArray[np.float32]) -> Codes:
    """The rounded form of vectors."""
    peaks = np.abs(vectors).max(axis=1)
    steps = np.where(peaks > 0, peaks / _STEPS, 1).astype(np.float32)
    exact = vectors / steps[:, None]
    codes = np.rint(exact)
    lost = np.linalg.norm(exact - codes, axis=1) * steps
    return codes.astype(np.int8), steps, float(lost.max())


def rough_scores(rows: Codes, vector: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
    """The scores of rows with a vector, and by how much each may be off. Rows are of unit
    vectors.

    Every step over all rows lets other threads run, and has to wait for them: there are few.
    """
    codes, steps, lost = rows
    asked, (step,), missing = rounded(vector[None])
    # v·q - v'·q' = v·(q - q') + (v - v')·q', where v has the length 1
    length = float(np.linalg.norm(vector))
    off = missing + lost * (length + missing) + _SLOP * length
    scores = np.empty((len(codes), 1), np.float32)
    simsimd.cdist(codes, asked, "dot", out=scores, out_dtype="float32")
    scores = scores[:, 0]
    scores *= steps
    return scores, off / float(step)
