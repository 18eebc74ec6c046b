"""The map: a sample of the vectors in the plane, coloured by what their records are."""

from __future__ import annotations

import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from markupsafe import Markup

from evervec.facade import Evervec
from evervec.model.deadlines import check, holding
from evervec.search.vector_sample import VectorSample, sample_vectors
from evervec.server.dashboard.page_routes import Pages
from evervec.server.dashboard.paths import link
from evervec.server.dashboard.projection import Group, grouped, project, shown, stepped
from evervec.server.dashboard.renderer import Values
from evervec.server.dashboard.words import clipped, duration
from evervec.server.problems import Problem
from evervec.server.requests import Scope
from evervec.server.view import ReaderView
from evervec.stores.values import Collection

router = Pages()

MOST = 2000
_MOST_KINDS = 20
_KEPT = 16
_FIELDS = 24
_MOST_NAMES, _NAMES_OF_ONE = 1000, 64
"""metadata fields that are considered for colours: of all records, and of one"""
_LONGEST_NAME = 200
_WIDTH, _HEIGHT, _EDGE = 1000, 620, 14
KIND, AGE = "", "age"
_FIELD = "field:"


@dataclass(frozen=True, slots=True)
class Point:
    """A record on the map."""

    x: float
    y: float
    kind: str
    id: str
    name: str
    updated_at: float


@dataclass(frozen=True, slots=True)
class Map:
    """A sample in the plane."""

    points: list[Point]
    shares: tuple[float, float]
    is_all: bool
    model: str
    fields: dict[str, list[str | None]]
    """metadata fields by which it can be coloured, with the value of each point as it is shown"""
    left_out: list[str]
    """kinds whose vectors are of another model"""


class Maps:
    """The last maps, each for as long as the store has not changed. What a client may choose freely,
    such as the colour, makes no other map."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], tuple[int, Map]] = OrderedDict()
        self._making: dict[tuple[str, str], tuple[threading.Lock, int]] = {}
        """a lock for each map that is being made, and how many threads use it"""

    def read(self, ev: Evervec, kind: str) -> Map:
        """The map of a tenant's vectors. Requests for the same map wait for the first of them."""
        key = (ev.tenant, kind)
        with self._turn(key):
            mark = ev.store.mark()
            known = self._kept.get(key)
            if known is not None and known[0] == mark:
                return known[1]
            made = make_map(ev, kind)
            with self._lock:
                self._kept[key] = (mark, made)
                self._kept.move_to_end(key)
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            return made

    @contextmanager
    def _turn(self, key: tuple[str, str]) -> Iterator[None]:
        with self._lock:
            turn, users = self._making.get(key, (threading.Lock(), 0))
            self._making[key] = turn, users + 1
        try:
            with holding(turn):
                yield
        finally:
            with self._lock:
                _, users = self._making.pop(key)
                if users > 1:
                    self._making[key] = turn, users - 1


@router.page("/ui/map", "map.html")
async def map(view: ReaderView, kind: str = "", colour: str = KIND) -> Values:
    maps: Maps = view.request.app.state.maps
    kinds = sorted(await view.run(view.ev.kinds))
    tenant = view.request.query_params.get("tenant")
    if kind and kind not in kinds:
        raise Problem(404, f"There are no records of the kind {kind[:80]!r}.")
    scope = view.request.scope
    made, groups, drawn = await view.run(_shown, maps, view.ev, kind, colour, scope, tenant)
    colours = {KIND: "kind", AGE: "age", **{_FIELD + name: name for name in made.fields}}
    return {
        "kinds": kinds, "kind": kind, "colour": colour if colour in colours else KIND,
        "colours": colours, "map": made, "groups": groups, "most": MOST, "tenant": tenant,
        "drawn": drawn,
    }  # fmt: skip


def _shown(
    maps: Maps, ev: Evervec, kind: str, colour: str, scope: Scope, tenant: str | None
) -> tuple[Map, list[Group], Markup]:
    made = maps.read(ev, kind)
    tones, groups = coloured(made, colour, ev.store.now())
    return made, groups, _drawn(scope, made.points, tones, tenant)


def make_map(ev: Evervec, kind: str) -> Map:
    """The map of the vectors of a kind, or of all kinds with the same model."""
    chosen, left_out = _chosen(ev, kind)
    samples = _samples(ev, chosen)
    records = [(c.kind, record) for c, sample in samples for record in sample.records]
    flat = project([vector for _, sample in samples for vector in sample.vectors])
    is_all = all(sample.is_all for _, sample in samples)
    points = [
        Point(x, y, kind, record.id, clipped(record.title or record.id, 80), record.updated_at)
        for (x, y), (kind, record) in zip(flat.points, records, strict=True)
    ]
    model = chosen[0].spec.name if chosen and chosen[0].spec else ""
    fields = grouping_fields([record.metadata for _, record in records])
    return Map(points, flat.shares, is_all, model, fields, left_out)


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


def coloured(made: Map, colour: str, now: float) -> tuple[list[str], list[Group]]:
    """The tone of each point, and the groups for the legend."""
    if colour == AGE and made.points:
        ages = [max(0.0, now - point.updated_at) for point in made.points]
        return stepped(ages, lambda age: " ".join(duration(age).split(" ")[:2]))
    if colour.startswith(_FIELD):
        values = made.fields.get(colour.removeprefix(_FIELD))
        return grouped([None] * len(made.points) if values is None else values)
    return grouped([point.kind for point in made.points])


def grouping_fields(metadata: Sequence[str | None]) -> dict[str, list[str | None]]:
    """The metadata fields that most of the sample has, of those that group it, with the value of
    each record. Of records with very many fields only the first are considered: the work and the
    memory do not grow with what is in them."""
    counts: Counter[str] = Counter()
    values: dict[str, dict[int, str]] = {}
    names: dict[str, str] = {}  # values that many records have are in memory once
    for place, source in enumerate(metadata):
        check()
        found: dict[str, Any] = json.loads(source or "{}")
        for name, value in islice(found.items(), _NAMES_OF_ONE):
            if not isinstance(value, str | int | float | bool | list) or value == []:
                continue
            if name not in values and (len(values) >= _MOST_NAMES or len(name) > _LONGEST_NAME):
                continue
            counts[name] += 1
            text = shown(value)
            values.setdefault(name, {})[place] = names.setdefault(text, text)
    grouping = [
        name for name, count in counts.most_common(4 * _FIELDS)
        if len(set(values[name].values())) <= max(12, count // 3)
    ]  # fmt: skip
    return {
        name: [values[name].get(place) for place in range(len(metadata))]
        for name in sorted(grouping[:_FIELDS])
    }


def _drawn(
    scope: Scope, points: Sequence[Point], tones: Sequence[str], tenant: str | None
) -> Markup:
    """The points as links. They cannot be reached by Tab, which would stop at each of them: the list
    of records is the way by keyboard."""
    check()
    shape = Markup(
        '<a href="{}" tabindex="-1"><circle class="{}" cx="{}" cy="{}" r="4.5"><title>{}</title>'
        "</circle></a>"
    )
    return Markup("").join(
        shape.format(
            link(scope, "records", point.kind, point.id, tenant=tenant),
            tone,
            round(_EDGE + (_WIDTH - 2 * _EDGE) * point.x, 1),
            round(_HEIGHT - _EDGE - (_HEIGHT - 2 * _EDGE) * point.y, 1),
            f"{point.kind}: {point.name}",
        )
        for point, tone in zip(points, tones, strict=True)
    )
