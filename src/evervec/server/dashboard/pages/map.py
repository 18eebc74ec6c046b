"""The map: a sample of the vectors in the plane, coloured by what their records are."""

from __future__ import annotations

import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from markupsafe import Markup

from evervec.facade import Evervec
from evervec.search.vector_sample import VectorSample, sample_vectors
from evervec.server.access import ReaderView
from evervec.server.dashboard.paths import link
from evervec.server.dashboard.projection import Group, grouped, project, stepped
from evervec.server.dashboard.rendering import Values
from evervec.server.dashboard.routing import Pages
from evervec.server.dashboard.words import clipped, duration
from evervec.server.requests import Scope
from evervec.stores.values import Collection, SampledRecord

router = Pages()

MOST = 2000
_MOST_KINDS = 20
_KEPT = 16
_FIELDS = 24
_WIDTH, _HEIGHT, _EDGE = 1000, 620, 14
KIND, AGE = "", "age"
_FIELD = "field:"


@dataclass(frozen=True, slots=True)
class Point:
    """A record on the map."""

    x: float
    y: float
    tone: str
    kind: str
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Map:
    """A sample in the plane."""

    points: list[Point]
    groups: list[Group]
    shares: tuple[float, float]
    is_all: bool
    model: str
    fields: list[str]
    """metadata fields by which it can be coloured"""
    left_out: list[str]
    """kinds whose vectors are of another model"""


class Maps:
    """The last maps, each for as long as the store has not changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str, str], tuple[int, Map]] = OrderedDict()

    def read(self, ev: Evervec, kind: str, colour: str) -> Map:
        """The map of a tenant's vectors."""
        mark, key = ev.store.mark(), (ev.tenant, kind, colour)
        known = self._kept.get(key)
        if known is not None and known[0] == mark:
            return known[1]
        made = make_map(ev, kind, colour)
        with self._lock:
            self._kept[key] = (mark, made)
            self._kept.move_to_end(key)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return made


@router.page("/ui/map", "map.html")
async def map(view: ReaderView, kind: str = "", colour: str = KIND) -> Values:
    maps: Maps = view.request.app.state.maps
    kinds = sorted(await view.run(view.ev.kinds))
    made = await view.run(maps.read, view.ev, kind if kind in kinds else "", colour)
    tenant = view.request.query_params.get("tenant")
    colours = {KIND: "kind", AGE: "age", **{_FIELD + name: name for name in made.fields}}
    return {
        "kinds": kinds, "kind": kind, "colour": colour if colour in colours else KIND,
        "colours": colours, "map": made, "most": MOST, "tenant": tenant,
        "drawn": _drawn(view.request.scope, made.points, tenant),
    }  # fmt: skip


def make_map(ev: Evervec, kind: str, colour: str) -> Map:
    """The map of the vectors of a kind, or of all kinds with the same model."""
    chosen, left_out = _chosen(ev, kind)
    samples = _samples(ev, chosen)
    records = [(c.kind, record) for c, sample in samples for record in sample.records]
    flat = project([vector for _, sample in samples for vector in sample.vectors])
    is_all = all(sample.is_all for _, sample in samples)
    metadata = [json.loads(record.metadata or "{}") for _, record in records]
    tones, groups = _coloured(records, metadata, colour, ev.store.now())
    points = [
        Point(x, y, tone, kind, record.id, clipped(record.title or record.id, 80))
        for (x, y), tone, (kind, record) in zip(flat.points, tones, records, strict=True)
    ]
    model = chosen[0].spec.name if chosen and chosen[0].spec else ""
    return Map(points, groups, flat.shares, is_all, model, _fields(metadata), left_out)


def _samples(ev: Evervec, chosen: Sequence[Collection]) -> list[tuple[Collection, VectorSample]]:
    """A sample of each kind: the same number of each, and what small kinds leave for the large."""
    take = partial(sample_vectors, ev.store, ev.index, ev.tenant)
    each = MOST // max(1, len(chosen))
    samples = {c.version: take(c, each) for c in chosen}
    larger = [c for c in chosen if not samples[c.version].is_all]
    spare = sum(each - len(samples[c.version].records) for c in chosen if c not in larger)
    if larger and spare >= len(larger):
        samples |= {c.version: take(c, each + spare // len(larger)) for c in larger}
    return [(c, samples[c.version]) for c in chosen]


def _chosen(ev: Evervec, kind: str) -> tuple[list[Collection], list[str]]:
    """The serving versions to show together: those of the model that most kinds have. Vectors of
    different models cannot be compared."""
    serving = [
        c for c in ev.store.versions.collections_of(ev.tenant)
        if c.state == "serving" and c.spec is not None and kind in ("", c.kind)
    ]  # fmt: skip
    if not serving:
        return [], []
    models = [(c.spec.provider, c.spec.model, c.spec.dimensions) for c in serving if c.spec]
    model, _ = Counter(models).most_common(1)[0]
    same = [c for c, made_by in zip(serving, models, strict=True) if made_by == model]
    chosen = same[:_MOST_KINDS]
    return chosen, sorted(c.kind for c in serving if c not in chosen)


def _coloured(
    records: Sequence[tuple[str, SampledRecord]],
    metadata: Sequence[dict[str, Any]],
    colour: str,
    now: float,
) -> tuple[list[str], list[Group]]:
    if colour == AGE and records:
        ages = [max(0.0, now - record.updated_at) for _, record in records]
        return stepped(ages, lambda age: " ".join(duration(age).split(" ")[:2]))
    if colour.startswith(_FIELD):
        name = colour.removeprefix(_FIELD)
        return grouped([each.get(name) for each in metadata])
    return grouped([kind for kind, _ in records])


def _fields(metadata: Sequence[dict[str, Any]]) -> list[str]:
    """The metadata fields that most of the sample has, of those that group it."""
    counts: Counter[str] = Counter()
    values: dict[str, set[str]] = {}
    for each in metadata:
        for name, value in each.items():
            if isinstance(value, str | int | float | bool | list):
                counts[name] += 1
                values.setdefault(name, set()).add(str(value))
    grouping = [
        name for name, count in counts.most_common(4 * _FIELDS)
        if len(values[name]) <= max(12, count // 3)
    ]  # fmt: skip
    return sorted(grouping[:_FIELDS])


def _drawn(scope: Scope, points: Sequence[Point], tenant: str | None) -> Markup:
    """The points as links. They cannot be reached by Tab, which would stop at each of them: the list
    of records is the way by keyboard."""
    shape = Markup(
        '<a href="{}" tabindex="-1"><circle class="{}" cx="{}" cy="{}" r="4.5"><title>{}</title>'
        "</circle></a>"
    )
    return Markup("").join(
        shape.format(
            link(scope, "records", point.kind, point.id, tenant=tenant),
            point.tone,
            round(_EDGE + (_WIDTH - 2 * _EDGE) * point.x, 1),
            round(_HEIGHT - _EDGE - (_HEIGHT - 2 * _EDGE) * point.y, 1),
            f"{point.kind}: {point.name}",
        )
        for point in points
    )
