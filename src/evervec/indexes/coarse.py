"""Vectors rounded to one byte per number, to find the few that must be compared exactly.

The time of a search over many vectors is limited by memory bandwidth. So each vector is kept a
second time, rounded to 255 steps, in a quarter of the memory. The rounding error of the vectors is
known, and with it the largest error of a rough score. Only vectors that may be among the best are
compared exactly, so the results are the same as without rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Codes = tuple[NDArray[np.int8], NDArray[np.float32], float]
"""of each vector its rounded numbers and the step size; of all, the largest length of a rounding
error"""

_STEPS = 127
_SLOP = 1e-5
"""for 32-bit sums, which differ with the order of addition"""

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
    """The rough scores of rows with a vector, and the largest error of each. Rows must be unit
    vectors.

    Each operation over all rows releases the GIL and has to wait to get it back, so there are few.
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
