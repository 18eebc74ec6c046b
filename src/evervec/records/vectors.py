"""Vectors that callers made themselves: checked when a record is added, and packed for the store.

The worker that embeds the record finds them there by the hash of each chunk, and asks no provider.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evervec.chunking import Cutter
from evervec.errors import InvalidRecord
from evervec.model.bounds import shown
from evervec.model.records import Chunk, ModelSpec, Vectors
from evervec.stores.values import Draft, GivenVectors

HASH_BYTES = 16
_ROUNDING = 1e-6
"""a vector whose length differs from one by less is taken as it is"""


class Target(NamedTuple):
    """The model and the chunks that the vectors of a kind's records must fit."""

    spec: ModelSpec
    key: str
    """by which workers find vectors of this model"""
    cutter: Cutter


def read_vectors(given: Any) -> Vectors:
    """The vectors of `add`, or of a record in `add_many`."""
    if isinstance(given, Vectors):
        return given
    if isinstance(given, Mapping) and given.keys() == {"model", "vectors"}:
        return Vectors(given["model"], given["vectors"])
    raise InvalidRecord(
        "vectors: must be evervec.Vectors(model, vectors), or a dict with these two keys, not "
        f"{shown(given)}"
    )


def fit_vectors(given: Vectors, draft: Draft, target: Target) -> GivenVectors:
    """The caller's vectors, one for each chunk of the record. Raises `InvalidRecord` if they are
    not of the target's model, or do not fit the chunks."""
    spec = target.spec
    if given.model not in (spec.model, spec.name):
        raise InvalidRecord(
            f"vectors: are of the model {shown(given.model)}, but records of this kind are searched "
            f"with {spec.model!r} (version {spec.name!r}); vectors of different models cannot be "
            "compared"
        )
    rows = _rows(given.vectors)
    if rows.shape[1] != spec.dimensions:
        raise InvalidRecord(
            f"vectors: have {rows.shape[1]} dimensions; those of {spec.model!r} have "
            f"{spec.dimensions}"
        )
    chunks, _ = target.cutter.cut(draft.title, draft.text)
    if len(rows) != len(chunks):
        raise InvalidRecord(
            f"vectors: {len(rows)} for a text of {len(chunks)} chunks; give one for each "
            "(ev.chunks shows them), or register the kind with a chunker that keeps the text whole"
        )
    return GivenVectors(target.key, pack_vectors(chunks, unit_rows(rows)))


def pack_vectors(chunks: Iterable[Chunk], rows: Iterable[NDArray[np.float32]]) -> bytes:
    """Each chunk's hash, then its vector."""
    return b"".join(
        part
        for chunk, row in zip(chunks, rows, strict=True)
        for part in (chunk.hash, row.astype("<f4").tobytes())
    )


def unpack_vectors(packed: bytes, dimensions: int) -> dict[bytes, NDArray[np.float32]]:
    """Vectors by the hash of their chunk."""
    size = HASH_BYTES + 4 * dimensions
    return {
        packed[at : at + HASH_BYTES]: np.frombuffer(packed, "<f4", dimensions, at + HASH_BYTES)
        for at in range(0, len(packed) - size + 1, size)
    }


def to_texts(given: Vectors) -> dict[str, Any]:
    """Vectors as JSON: each as base64, which loses nothing and is short."""
    rows = _rows(given.vectors)
    texts = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in rows]
    return {"model": given.model, "vectors": texts}


def _rows(given: Any) -> NDArray[np.float32]:
    """Vectors as rows; a single vector is one row."""
    if isinstance(given, Sequence) and any(isinstance(vector, str) for vector in given):
        given = [_decoded(vector) if isinstance(vector, str) else vector for vector in given]
    try:
        found = np.asarray(given)
    except ValueError:
        raise InvalidRecord("vectors: must all have the same number of dimensions") from None
    if found.dtype.kind not in "fiu" or found.ndim not in (1, 2) or not found.size:
        raise InvalidRecord(
            "vectors: must be a list of vectors of numbers, of the same number of dimensions"
        )
    with np.errstate(over="ignore"):
        return np.asarray(found, np.float32).reshape(-1, found.shape[-1])


def _decoded(text: str) -> NDArray[np.float32]:
    try:
        return np.frombuffer(base64.b64decode(text, validate=True), "<f4")
    except (binascii.Error, ValueError):
        raise InvalidRecord(
            "vectors: a text must be the base64 of little-endian 32-bit floats"
        ) from None


def unit_rows(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The rows with length one."""
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    bad = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))
    if len(bad):
        raise InvalidRecord(f"vectors: number {bad[0]} is zero, or has values that are not finite")
    if (abs(lengths - 1) < _ROUNDING).all():
        return rows
    return np.asarray(rows / lengths[:, None], np.float32)
