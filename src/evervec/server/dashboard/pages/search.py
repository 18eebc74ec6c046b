"""Try a search: what is found, why, and what another embedding version would find."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from evervec.errors import InvalidArgument
from evervec.facade import Evervec
from evervec.model.explanations import Explanation
from evervec.model.records import Hit, Hits
from evervec.search.matched_words import matched_words
from evervec.server.dashboard import snippets
from evervec.server.dashboard.commands import cli
from evervec.server.dashboard.excerpts import Excerpt, Surrounded, excerpt, surrounded
from evervec.server.dashboard.filter_form import TESTS
from evervec.server.dashboard.page_routes import Pages
from evervec.server.dashboard.paths import base_address
from evervec.server.dashboard.renderer import Values
from evervec.server.dashboard.search_form import MOST_HITS, SearchForm
from evervec.server.dashboard.tables import Table
from evervec.server.dashboard.words import clipped
from evervec.server.problems import Problem, problem_of
from evervec.server.view import ReaderView, View
from evervec.stores.values import Collection

router = Pages()

_EXCERPT = 320
_AROUND = 240
"""characters before and after a chunk"""
_TONES = {"meaning": "a", "words": "b", "rerank": "d"}


@dataclass(frozen=True, slots=True)
class ShownHit:
    """A hit as the page shows it."""

    place: int
    hit: Hit
    why: Explanation
    places: list[tuple[int, int]]
    """of the matched words in its text"""
    title: str
    """what it is called on the page, clipped"""
    title_places: list[tuple[int, int]]
    """of the matched words in its title"""
    words: list[str]
    """the matched words, each once"""
    excerpt: Excerpt
    parts: list[tuple[str, float, str]]
    """of the bar: name, size and tone"""
    around: Surrounded | None
    """what surrounds the chunk; None if the hit is the whole text"""
    moved: int | None = None
    """by how many places it is higher than in the other version; None: the other lacks it"""


@dataclass(frozen=True, slots=True)
class Side:
    """The hits of one version."""

    name: str
    hits: list[ShownHit]
    via: str
    version: str | None
    rerank_error: str | None


@router.page("/ui/search", "search.html")
async def search(view: ReaderView) -> Values:
    form = SearchForm.read(view.request.query_params)
    collections = await view.run(view.ev.store.versions.collections_of, view.tenant)
    values: Values = {
        "form": form,
        "kinds": sorted({c.kind for c in collections} | set(form.kinds)),
        "versions": _versions(collections),
        "tests": TESTS,
        "most_hits": MOST_HITS,
        "tenant": view.request.query_params.get("tenant"),
        "own_tenant": view.tenant,
        "problem": None,
        "sides": [],
        "hits": Table("hits", []),
        "copies": [],
    }
    if not form.query:
        return values
    try:
        asked = form.arguments()
        sides = await view.run(_search, view.ev, asked, form.other)
    except (Problem, InvalidArgument) as error:
        return values | {"problem": problem_of(error, view.caller)}
    values["sides"] = sides
    values["hits"] = Table("hits", [_row(shown) for shown in sides[0].hits])
    values["copies"] = _copies(view, asked)
    return values


def _versions(collections: Sequence[Collection]) -> dict[str, str]:
    """The versions that can be searched, with their states."""
    found: dict[str, set[str]] = {}
    for c in collections:
        if c.spec is not None and c.state != "retired":
            found.setdefault(c.spec.name, set()).add(c.state)
    return {name: ", ".join(sorted(states)) for name, states in sorted(found.items())}


def _search(ev: Evervec, asked: Mapping[str, Any], other: str) -> list[Side]:
    search, query = partial(ev.search, explain=True), asked["query"]
    first = search(**asked)
    if not other or asked.get("mode") == "text":
        return [_side(ev, query, "", first, None)]
    second = search(**{**asked, "version": other})
    if first.via == second.via == "text":  # words find the same, whatever the version
        return [_side(ev, query, "", first, None)]
    return [
        _side(ev, query, asked.get("version", ""), first, second),
        _side(ev, query, other, second, first),
    ]


def _side(ev: Evervec, query: str, name: str, hits: Hits, others: Hits | None) -> Side:
    places = {(hit.kind, hit.id): n for n, hit in enumerate(others or (), 1)}
    shown = []
    for place, hit in enumerate(hits, 1):
        assert hit.explanation is not None
        there = places.get((hit.kind, hit.id))
        shown.append(_shown(ev, query, place, hit, hit.explanation, there))
    return Side(name, shown, hits.via, hits.version, hits.rerank_error)


def _shown(
    ev: Evervec, query: str, place: int, hit: Hit, why: Explanation, there: int | None
) -> ShownHit:
    places = [(word.start, word.end) for word in why.matched]
    total = sum(why.parts.values())
    factor = why.weight_factor * why.age_factor
    parts = [(name, size, _TONES[name]) for name, size in why.parts.items()]
    if factor and factor < 1.0:
        parts.append(("taken away by weight and age", total / factor - total, "lost"))
    around = None
    if why.start or why.position is not None:
        record = ev.get(hit.kind, hit.id)
        # it may have changed since the search
        if record is not None and record.text[why.start : why.end] == hit.text != record.text:
            around = surrounded(record.text, why.start, why.end, _AROUND)
    moved = None if there is None else there - place
    cut = excerpt(hit.text, places, _EXCERPT)
    title = clipped(hit.title or hit.id)
    in_title = matched_words(query, title) if hit.title else ()
    found = dict.fromkeys(each.word for each in (*in_title, *why.matched))
    return ShownHit(
        place, hit, why, places, title, [(each.start, each.end) for each in in_title], list(found),
        cut, parts, around, moved,
    )  # fmt: skip


def _row(shown: ShownHit) -> dict[str, Any]:
    hit = shown.hit
    return {
        "place": shown.place, "kind": hit.kind, "id": hit.id, "title": hit.title,
        "relevance": hit.relevance, "similarity": hit.similarity, "via": hit.via,
        **shown.why.parts, "metadata": hit.metadata, "text": hit.text,
    }  # fmt: skip


def _copies(view: View, asked: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The search for other programs: an id, a name and the text of each."""
    base, has_key = base_address(view.request.scope), view.caller.key is not None
    tenant = view.tenant if view.tenant != view.caller.tenant else None
    if (evervec := cli(view)) is None:  # where the store is, is for the person to know
        named = [f"--tenant={view.tenant}"] if view.tenant != "default" else []
        evervec = shlex.join(["evervec", *named])
    return [
        ("curl", "curl", snippets.as_curl(base, asked, tenant, has_key)),
        ("python", "Python", snippets.as_python(base, asked, tenant, has_key)),
        ("cli", "Command line", snippets.as_command(asked, evervec)),
    ]
