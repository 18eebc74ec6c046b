"""A map of vectors: the two directions in which they differ most (principal components)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from evervec.model.deadlines import check

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_WIDTH = 8
"""directions that are searched for at once: more than two, so that the first two are found soon"""
_ROUNDS = 14
_IN_ONE_THREAD = 200_000
"""multiplications of a product that OpenBLAS does in the calling thread: with more it would take all
processors from other requests"""
_MOST_GROUPS = 7
OTHERS = "others"
ABSENT = "no value"


class Projection(NamedTuple):
    """Vectors in the plane."""

    points: list[tuple[float, float]]
    """from 0 to 1"""
    shares: tuple[float, float]
    """of the variance that each of the two directions explains"""


def project(vectors: Sequence[NDArray[np.float32]]) -> Projection:
    """The vectors in the plane of their first two principal components. Subspace iteration: its cost
    grows with the vectors' size, not with its square as that of a full decomposition."""
    import numpy as np

    if len(vectors) < 2:
        return Projection([(0.5, 0.5)] * len(vectors), (0.0, 0.0))
    centred = np.asarray(vectors, dtype=np.float32)
    centred = centred - centred.mean(axis=0)
    total = float((centred.astype(np.float64) ** 2).sum())
    if total == 0.0:
        return Projection([(0.5, 0.5)] * len(vectors), (0.0, 0.0))
    width = min(_WIDTH, *centred.shape)
    basis = np.random.default_rng(0).standard_normal((centred.shape[1], width), dtype=np.float32)
    rows = max(1, _IN_ONE_THREAD // (centred.shape[1] * width))
    parts = [centred[start : start + rows] for start in range(0, len(centred), rows)]
    for _ in range(_ROUNDS):
        check()
        product = np.zeros_like(basis)
        for part in parts:
            product += part.T @ (part @ basis)
        basis, _ = np.linalg.qr(product)
    turned = np.concatenate([part @ basis for part in parts])
    left, sizes, right = np.linalg.svd(turned.astype(np.float64), full_matrices=False)
    flat = left[:, :2] * sizes[:2]
    directions = basis.astype(np.float64) @ right.T
    for axis in range(flat.shape[1]):  # either sign is right: the same is chosen every time
        direction = directions[:, axis]
        if direction[np.argmax(np.abs(direction))] < 0:
            flat[:, axis] *= -1
    if flat.shape[1] < 2:
        flat = np.hstack([flat, np.zeros((len(flat), 1))])
        sizes = np.append(sizes, 0.0)
    shares = tuple(float(size) ** 2 / total for size in sizes[:2])
    low, high = flat.min(axis=0), flat.max(axis=0)
    scaled = (flat - low) / np.where(high > low, high - low, 1.0)
    return Projection([(float(x), float(y)) for x, y in scaled], (shares[0], shares[1]))


@dataclass(frozen=True, slots=True)
class Group:
    """Points of one colour."""

    name: str
    tone: str
    count: int


def grouped(values: Sequence[Any]) -> tuple[list[str], list[Group]]:
    """The tone of each point by its value, and the groups for the legend: the most frequent values,
    the others together."""
    named = [ABSENT if value is None or value == [] else shown(value) for value in values]
    counts = Counter(name for name in named if name != ABSENT)
    chosen = [name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    if len(chosen) > _MOST_GROUPS + 1:
        chosen = chosen[:_MOST_GROUPS]
    tones = {name: f"m{number}" for number, name in enumerate(chosen)}
    groups = [Group(name, tones[name], counts[name]) for name in chosen]
    if rest := sum(counts.values()) - sum(group.count for group in groups):
        groups.append(Group(OTHERS, "rest", rest))
    if absent := named.count(ABSENT):
        groups.append(Group(ABSENT, "none", absent))
    found = ["none" if name == ABSENT else tones.get(name, "rest") for name in named]
    return found, groups


def stepped(
    values: Sequence[float], named: Callable[[float], str], steps: int = 5
) -> tuple[list[str], list[Group]]:
    """The tone of each point by the rank of its number: each step has about as many points."""
    order = sorted(values)
    bounds = [order[min(len(order) - 1, len(order) * n // steps)] for n in range(1, steps)]
    place = [sum(value >= bound for bound in bounds) for value in values]
    groups = []
    for step in range(steps):
        inside = [value for value, at in zip(values, place, strict=True) if at == step]
        if inside:
            low, high = named(min(inside)), named(max(inside))
            name = low if low == high else f"{low} to {high}"
            groups.append(Group(name, f"t{step}", len(inside)))
    return [f"t{at}" for at in place], groups


def shown(value: Any) -> str:
    """A value as the legend shows it."""
    if isinstance(value, list):
        return ", ".join(map(str, value[:60]))[:60]
    return str(value)[:60]
