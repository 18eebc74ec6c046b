"""How hits are shown: where each is, why it was found, and the passage with the words of the query."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evervec.cli.output import facts, print_json, say, styled

if TYPE_CHECKING:
    from evervec.cli.query_words import Span
    from evervec.facade import Evervec
    from evervec.files.folder import Folder
    from evervec.files.places import Place
    from evervec.model.records import Hit, Hits, Record

_BAR = 40
"""characters of a relevance of 1"""
_WIDTH = 240
_SNAP = 30
"""characters by which a passage is shortened, at most, to begin and end with a whole word"""
_SPACE = re.compile(r"\s+")
_LONGEST_VALUE = 200
"""characters that are shown of a column of a row"""


class HitPrinter:
    """Prints the hits of a search of one store."""

    def __init__(self, ev: Evervec, query: str, *, explain: bool = False) -> None:
        self._ev = ev
        self._query = query
        self._explain = explain
        self._folders: dict[str, dict[str, Folder]] = {}
        self._records: dict[tuple[str, str], Record | None] = {}

    def print_json(self, hits: Hits) -> None:
        print_json(
            {
                "hits": [self._facts(hit) for hit in hits], "via": hits.via,
                "version": hits.version, "reranked": hits.reranked,
                "rerank_error": hits.rerank_error,
            }
        )  # fmt: skip

    def print(self, hits: Hits, before: int = 0) -> None:
        """Print hits for a reader; `before`: hits on earlier pages."""
        from evervec.model.filters import group_key

        if not hits:
            say("nothing found")
        has_groups = any(hit.group is not None for hit in hits)
        group: Any = None
        for place, hit in enumerate(hits, before + 1):
            if (now := group_key(hit.group)) != group and has_groups:
                group = now
                say(styled(_group(hit.group), "bold", "cyan"))
            shown, offset = self._passage(hit)
            near = f"similarity {hit.similarity:.2f}, " if hit.similarity is not None else ""
            head = styled(hit.title or hit.id, "bold")
            where = self._location(hit, offset) or (hit.id if hit.title else "")
            label = " ".join(filter(None, (hit.kind, where)))
            scores = styled(f"relevance {hit.relevance:.2f}, {near}{hit.via}", "dim")
            say(f"{place:2}. {head}  {styled(label, 'cyan')}  {scores}")
            if self._explain:
                show_explanation(hit)
            say(f"    {shown}")
            for name, value in (hit.row or {}).items():
                say(f"    {styled(name, 'dim')} {_short(value)}")
            say()

    def _facts(self, hit: Hit) -> dict[str, Any]:
        from evervec.records.kinds import plain_data

        _, offset = self._passage(hit)
        located = self._location(hit, offset)
        shown = facts(hit if self._explain else replace(hit, explanation=None))
        shown["data"] = plain_data(hit.data)
        return {**shown, "location": located} if located else shown

    def _passage(self, hit: Hit) -> tuple[str, int]:
        """The passage to show, and where in the record's text its first word of the query is."""
        from evervec.cli.query_words import better_place, query_words

        # the chunk is the nearest in meaning; the words may be in another
        if (record := self._record(hit) if self._query else None) is not None:
            words = better_place(self._query, hit.text, record.text, _WIDTH)
            if words is not None:
                return passage(record.text, words)
        shown, first = passage(hit.text, query_words(self._query, hit.text))
        return shown, first + (hit.explanation.start if hit.explanation else 0)

    def _record(self, hit: Hit) -> Record | None:
        """The record of a hit, read once."""
        key = hit.kind, hit.id
        if key not in self._records:
            self._records[key] = self._ev.get(*key)
        return self._records[key]

    def _location(self, hit: Hit, offset: int) -> str:
        """File and line of a hit, for the terminal to open; empty for a record of no file."""
        if "path" not in hit.metadata or hit.explanation is None:
            return ""
        from evervec.files.places import place_of

        if (record := self._record(hit)) is None:
            return ""
        return written_place(self._path(hit), place_of(record.text, record.metadata, offset))

    def _path(self, hit: Hit) -> str:
        from evervec.cli.files import known_folders

        if hit.kind not in self._folders:
            self._folders[hit.kind] = known_folders(self._ev, hit.kind)
        folder = self._folders[hit.kind].get(str(hit.metadata.get("folder")))
        if folder is None or not (path := Path(folder.path, hit.id)).exists():
            return hit.id
        here = Path.cwd()
        return os.fspath(path.relative_to(here) if path.is_relative_to(here) else path)


def written_place(path: str, place: Place | None) -> str:
    """A path and a place in its file, such as `notes.md:12`."""
    if place is None:
        return path
    at = f":{place.at}" if place.what == "line" else f" {place.what} {place.at}"
    return f"{path}{at}" + (f" in {place.inside}" if place.inside else "")


def passage(text: str, spots: Sequence[Span], width: int = _WIDTH) -> tuple[str, int]:
    """An excerpt of a text with most of the given words, which are marked, in one line and cut
    between words; and where the first of these words is, or the excerpt itself."""
    start = _best_start(spots, len(text), width)
    inside = [span for span in spots if start <= span[0] and span[1] <= start + width]
    start, end = _snapped(text, start, min(len(text), start + width), inside)
    inside = [span for span in inside if start <= span[0] and span[1] <= end]
    shown, place = "", start
    for first, last in inside:
        shown += _line(text[place:first]) + styled(text[first:last], "bold", "yellow")
        place = last
    shown = (shown + _line(text[place:end])).strip()
    lead, tail = text[:start].strip(), text[end:].strip()
    first = inside[0][0] if inside else start
    return ("…" if lead else "") + shown + ("…" if tail else ""), first


def _line(text: str) -> str:
    return _SPACE.sub(" ", text)


def _best_start(spots: Sequence[Span], length: int, width: int) -> int:
    """Start of the window of `width` characters that holds most spots."""
    best, most = 0, 0
    for first, _ in spots:
        start = max(0, min(first - _SNAP, length - width))
        count = sum(start <= a and b <= start + width for a, b in spots)
        if count > most:
            best, most = start, count
    return best


def _snapped(text: str, start: int, end: int, spots: Sequence[Span]) -> Span:
    """The window without the parts of words at its ends, where a space is near."""
    if start > 0 and not text[start - 1].isspace():
        limit = min([start + _SNAP, *(first for first, _ in spots[:1])])
        start = next((at + 1 for at in range(start, limit) if text[at].isspace()), start)
    if end < len(text) and not text[end].isspace():
        limit = max([end - _SNAP, *(last for _, last in spots[-1:])])
        end = next((at for at in range(end - 1, limit - 1, -1) if text[at].isspace()), end)
    return start, end


def _group(value: Any) -> str:
    """The heading of a group: a text as it is, other values as JSON."""
    if value is None:
        return "(none)"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def show_explanation(hit: Hit) -> None:
    """The relevance as a bar of its parts, and a line for each."""
    why = hit.explanation
    if why is None:
        return
    parts = why.parts
    if (rerank := why.reranked) is not None:
        length = max(0, round(_BAR * parts["rerank"]))
        bar = styled("█" * length, "cyan") + styled("·" * max(0, _BAR - length), "dim")
        say(f"    {bar} {hit.relevance:.3f}")
        say(f"    {styled('█', 'cyan')} score {rerank.score:.3f} by {rerank.reranker}; before:")
        parts = rerank.parts
    meaning, words = (max(0, round(_BAR * parts[name])) for name in ("meaning", "words"))
    rest = "·" * max(0, _BAR - meaning - words)
    bar = styled("█" * meaning, "green") + styled("▒" * words, "yellow") + styled(rest, "dim")
    say(f"    {bar} {sum(parts.values()):.3f}")
    at = (
        "not among the nearest" if why.semantic_rank is None else f"nearest no. {why.semantic_rank}"
    )
    say(f"    {styled('█', 'green')} meaning {parts['meaning']:.3f}: cosine "
        f"{'at most ' if why.similarity is None else ''}{why.meaning:.3f}, {at}")  # fmt: skip
    found = sorted({match.word.lower() for match in why.matched})
    listed = f" ({', '.join(found[:8])})" if found else ""
    ranked = "no match" if why.text_rank is None else f"text no. {why.text_rank}"
    say(f"    {styled('▒', 'yellow')} words   {parts['words']:.3f}: "
        f"score {why.words:.3f}, {ranked}{listed}")  # fmt: skip
    age = (
        ""
        if why.age_factor == 1
        else f", age {why.age_days:.1f} days (factor {why.age_factor:.3f})"
    )
    say(f"    weight {why.weight:g} (factor {why.weight_factor:.3f}){age}")
    where = [f"chunk {why.position}"] if why.position is not None else []
    where += [" > ".join(why.headings)] if why.headings else []
    where += [f"characters {why.start} to {why.end}", f"seq {why.seq}"]
    say(styled(f"    {', '.join(where)}{f', version {why.version}' if why.version else ''}", "dim"))
