"""Vectors that depend on nothing but the text, and how they are written in JSON.

Each byte of a text's hash is an angle, and gives two numbers: a point on a circle. So a vector
has its length without a sum over its numbers, and is written by looking up what is written
already: the double of a fast service must not spend its time on printing floats.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from pybase64 import b64encode_as_string

from evervec.embedders.hashing import HashingEmbedder


def count_tokens(text: str) -> int:
    """How many tokens a text has here: a fourth of its bytes, and one."""
    return len(as_bytes(text)) // 4 + 1


def vector(text: str, dimensions: int) -> NDArray[np.float32]:
    """The unit vector of a text; texts that differ at all have nothing in common."""
    row: NDArray[np.float32] = vectors([text], dimensions)[0]
    return row


def vectors(texts: Sequence[str], dimensions: int, length: float = 1.0) -> NDArray[np.float32]:
    """The vectors of some texts, a row each."""
    angles = np.frombuffer(b"".join([_angles(text, dimensions) for text in texts]), np.uint8)
    points = _circle(dimensions, length).view("<u8").reshape(-1)  # both numbers taken as one
    rows = points.take(angles).view("<f4").reshape(len(texts), (dimensions + 1) // 2 * 2)
    if dimensions % 2:
        rows = rows[:, :dimensions]
        rows[:, -1] = np.copysign(length / math.sqrt(dimensions), rows[:, -1])
    return rows


def as_bytes(text: str) -> bytes:
    return text.encode(errors="replace")  # lone surrogates


def _angles(text: str, dimensions: int) -> bytes:
    return hashlib.shake_128(as_bytes(text)).digest((dimensions + 1) // 2)


@lru_cache(maxsize=64)
def _circle(dimensions: int, length: float) -> NDArray[np.float32]:
    radius = length * math.sqrt(2 / dimensions)
    angles = (np.arange(256) + 0.5) * (2 * math.pi / 256)
    return (radius * np.stack([np.cos(angles), np.sin(angles)], 1)).astype("<f4")


@lru_cache(maxsize=64)
def _written(dimensions: int, length: float) -> list[str]:
    return [f"{x},{y}" for x, y in _circle(dimensions, length)]


def in_json(rows: NDArray[np.float32], *, in_base64: bool) -> list[str]:
    if in_base64:
        rows = np.ascontiguousarray(rows, "<f4")
        return [f'"{b64encode_as_string(row)}"' for row in rows]
    return [json.dumps(row.tolist()) for row in rows]  # writes NaN, as servers in Python do


def sound(texts: Sequence[str], dimensions: int, length: float, *, in_base64: bool) -> list[str]:
    """The vectors of texts in JSON, in little time."""
    if in_base64 or dimensions % 2:
        return in_json(vectors(texts, dimensions, length), in_base64=in_base64)
    written = _written(dimensions, length)
    return [
        f"[{','.join([written[angle] for angle in _angles(text, dimensions)])}]" for text in texts
    ]


def worded(texts: Sequence[str], dimensions: int, length: float, *, in_base64: bool) -> list[str]:
    """Other vectors in JSON: texts that share words are near each other. This takes longer."""
    rows = length * HashingEmbedder(dimensions).embed(texts)
    return in_json(rows, in_base64=in_base64)
