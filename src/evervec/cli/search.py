"""Commands that search: search, similar, and how kinds are ranked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from evervec.cli.app import Where, command, write_audit
from evervec.cli.output import passage, print_json, say, show, show_list, styled
from evervec.errors import InvalidArgument
from evervec.model.ranking import RESCORES, Rescore

if TYPE_CHECKING:
    from evervec.model.records import Hit, Hits

_BAR = 40
"""characters of a relevance of 1"""


@command("search", "evervec search 'how do I undo a commit' -k 3")
@click.argument("query", nargs=-1, required=True)
@click.option("-k", default=5, show_default=True, help="Number of hits.")
@click.option("--kind", "kinds", multiple=True, help="Only records of this kind; repeatable.")
@click.option(
    "--mode",
    type=click.Choice(["hybrid", "semantic", "text"]),
    default="hybrid",
    show_default=True,
    help="Search by meaning and words, or by one of them.",
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Only records with this metadata value; VALUE may be JSON.",
)
@click.option("--min", "least", type=float, help="Only hits with at least this relevance.")
@click.option("--offset", type=int, default=0, help="Skip so many hits.")
@click.option("--group-by", metavar="FIELD", help="-k hits for each value of a metadata field.")
@click.option("--diversity", type=float, help="0 to 1: how much hits should differ.")
@click.option(
    "--rerank",
    is_flag=False,
    flag_value="",
    metavar="[NAME]",
    help="Let a reranker order the hits: the setting's, or cohere:MODEL, jina:MODEL, "
    "local:FOLDER or a URL. Write it after the query.",
)
@click.option("--explain", is_flag=True, help="Show how each relevance was calculated.")
def search(where: Where, query: tuple[str, ...], k: int, kinds: tuple[str, ...], mode: str,
           filters: tuple[str, ...], least: float | None, offset: int, group_by: str | None,
           diversity: float | None, rerank: str | None, explain: bool,
           as_json: bool) -> int:  # fmt: skip
    """Search records by meaning and by words."""
    text = " ".join(query)
    with where.opened() as ev:
        hits = ev.search(
            text, k, kind=kinds or None, mode=mode, filter=_filter(filters), explain=explain,
            min_relevance=least, offset=offset, group_by=group_by, diversity=diversity,
            rerank=True if rerank == "" else rerank,
        )  # fmt: skip
        empty = not hits and not ev.records(limit=1)
    if empty and not as_json:
        say("the store is empty: add records with `evervec add KIND FILES…`")
    else:
        _show_hits(hits, text, offset, as_json=as_json)
    if hits and hits.via == "text" and mode != "text" and not as_json:
        say("(text search only: no vectors could be searched)", err=True)
    if hits.rerank_error and not as_json:
        say(f"(not reranked: {hits.rerank_error})", err=True)
    return 0


@command("similar", "evervec similar doc README.md -k 3")
@click.argument("kind")
@click.argument("id")
@click.option("-k", default=5, show_default=True, help="Number of hits.")
def similar(where: Where, kind: str, id: str, k: int, as_json: bool) -> None:
    """Find the records that are most similar to a record."""
    with where.opened() as ev:
        hits = ev.similar(kind, id, k)
    _show_hits(hits, "", 0, as_json=as_json)


@command("kinds", "evervec kinds note --rescore recent")
@click.argument("kind", required=False)
@click.option(
    "--rescore",
    metavar="NAME",
    help="plain: age does not count; recent: new records rank higher; or BASE,GAIN,DAYS.",
)
def kinds(where: Where, kind: str | None, rescore: str | None, as_json: bool) -> None:
    """Show the kinds, or set how weight and age change the relevance of a kind's records."""
    if rescore is not None and kind is None:
        raise click.UsageError("--rescore needs the name of a kind")
    with where.opened() as ev:
        if rescore is not None and kind is not None:
            from evervec.records.kinds import Kind

            ev.register(Kind(kind, rescore=_rescore(rescore)))
            write_audit(ev, "kind.rescore", f"{kind} {rescore}")
            show(as_json, {"kind": kind, "rescore": rescore}, f"{kind}: rescored by {rescore}")
            return
        found = ev.kinds()
    chosen = {name: used for name, used in found.items() if kind in (None, name)}
    if as_json:
        print_json(chosen)
        return
    show_list(
        False, list(chosen.items()), "there are no records of any kind" if kind is None else
        f"there are no records of the kind {kind!r}",
        {"kind": lambda entry: entry[0], "rescore": lambda entry: _named(entry[1])},
    )  # fmt: skip


def _rescore(given: str) -> Rescore:
    if given in RESCORES:
        return RESCORES[given]
    try:
        base, gain, days = (float(part) if part else None for part in given.split(","))
    except ValueError:
        raise InvalidArgument(
            f"--rescore {given}: write {', '.join(RESCORES)} or BASE,GAIN,DAYS, such as 0.6,0.3,90"
        ) from None
    return Rescore(base, gain, days)  # type: ignore[arg-type] # it checks them


def _named(rescore: Rescore) -> str:
    name = next((name for name, known in RESCORES.items() if known == rescore), None)
    days = "" if rescore.days is None else f"{rescore.days:g}"
    return name or f"{rescore.base:g},{rescore.gain:g},{days}"


def _show_hits(hits: Hits, query: str, before: int, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "hits": list(hits), "via": hits.via, "version": hits.version,
                "reranked": hits.reranked, "rerank_error": hits.rerank_error,
            }
        )  # fmt: skip
        return
    if not hits:
        say("nothing found")
    group: Any = object()
    for place, hit in enumerate(hits, before + 1):
        if hit.group != group and any(other.group is not None for other in hits):
            group = hit.group
            say(styled("(none)" if group is None else str(group), "bold", "cyan"))
        near = f"similarity {hit.similarity:.2f}, " if hit.similarity is not None else ""
        head = styled(hit.title or hit.id, "bold")
        label = f"{hit.kind} {hit.id}" if hit.title and hit.title != hit.id else hit.kind
        scores = styled(f"relevance {hit.relevance:.2f}, {near}{hit.via}", "dim")
        say(f"{place:2}. {head}  {styled(label, 'cyan')}  {scores}")
        _show_explanation(hit)
        say(f"    {passage(hit.text, query)}")
        say()


def _show_explanation(hit: Hit) -> None:
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


def _filter(given: tuple[str, ...]) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for part in given:
        name, equals, value = part.partition("=")
        if not equals:
            raise click.UsageError(f"--filter {part}: write it as FIELD=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found or None
