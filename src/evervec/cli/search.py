"""Commands that search: search, similar, and how kinds are ranked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from evervec.cli.app import Where, command, write_audit
from evervec.cli.hits import HitPrinter
from evervec.cli.output import print_json, say, show, show_list
from evervec.errors import InvalidArgument
from evervec.model.ranking import RESCORES, Rescore

if TYPE_CHECKING:
    from evervec.facade import Evervec
    from evervec.model.records import Hits


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
@click.option(
    "--min-similarity",
    "nearest",
    type=click.FloatRange(-1, 1),
    help="Only hits with at least this cosine similarity.",
)
@click.option("--offset", type=int, default=0, help="Skip this many hits.")
@click.option(
    "--group-by", metavar="FIELD", help="Show -k hits for each value of this metadata field."
)
@click.option(
    "--diversity", type=float, help="0 to 1: how much hits should differ from each other."
)
@click.option(
    "--rerank",
    is_flag=False,
    flag_value="",
    metavar="[NAME]",
    help="Let a reranker order the hits: the setting's, or cohere:MODEL, jina:MODEL, "
    "local:FOLDER or a URL. Write it after the query.",
)
@click.option("--version", metavar="NAME", help="Search this embedding version.")
@click.option("--rows", is_flag=True, help="Show the rows of attached tables.")
@click.option("--explain", is_flag=True, help="Show how each relevance was calculated.")
def search(where: Where, query: tuple[str, ...], k: int, kinds: tuple[str, ...], mode: str,
           filters: tuple[str, ...], least: float | None, nearest: float | None, offset: int,
           group_by: str | None, diversity: float | None, rerank: str | None, version: str | None,
           rows: bool, explain: bool, as_json: bool) -> int:  # fmt: skip
    """Search records by meaning and by words.

    A hit from a file names the file and its line, page, cell or time.
    """
    text = " ".join(query)
    with where.opened() as ev:
        if least is not None and least > (most := _most_relevance(ev)):
            raise click.UsageError(f"--min {least:g}: no relevance is above {most:g}")
        hits = ev.search(
            text, k, kind=kinds or None, mode=mode, filter=read_filters(filters), explain=True,
            min_relevance=least, min_similarity=nearest, offset=offset, group_by=group_by,
            diversity=diversity, rerank=True if rerank == "" else rerank, version=version, rows=rows,
        )  # fmt: skip
        printer = HitPrinter(ev, text, explain=explain)
        if as_json:
            printer.print_json(hits)
        elif not hits and (unknown := unknown_kinds(ev.kinds(), kinds)):
            say(unknown)
        elif not hits and not ev.records(limit=1):
            say(
                "no row of the attached tables is embedded yet: run `evervec worker`"
                if ev.attachments.waiting()
                else "the store is empty: add records with `evervec add KIND FILES…`"
            )
        elif not hits and (least is not None or nearest is not None):
            best = ev.search(
                text, 1, kind=kinds or None, mode=mode, filter=read_filters(filters),
                version=version,
            )  # fmt: skip
            say(_below(best, least, nearest))
        else:
            printer.print(hits, offset)
    if hits and hits.via == "text" and mode != "text" and not as_json:
        say("(text search only: no vectors could be searched)", err=True)
    if hits.rerank_error and not as_json:
        say(f"(not reranked: {hits.rerank_error})", err=True)
    return 0


def _most_relevance(ev: Evervec) -> float:
    """The highest relevance that a record of full weight can have."""
    return max([1.0, *(rescore.strength(1.0) for rescore in ev.kinds().values())])


def _below(best: Hits, least: float | None, nearest: float | None) -> str:
    """What to say if all hits are below the given bounds."""
    if not best:
        return "nothing found"
    hit, bounds = best[0], []
    if least is not None:
        bounds.append(f"--min {least:g}; the best hit has a relevance of {hit.relevance:.2f}")
    if nearest is not None:
        has = "none" if hit.similarity is None else f"{hit.similarity:.2f}"
        bounds.append(f"--min-similarity {nearest:g}; the best hit has {has}")
    return f"nothing found within {' and '.join(bounds)}"


def unknown_kinds(known: Mapping[str, object], kinds: Sequence[str]) -> str:
    """What to say of kinds that have no records; empty if all have."""
    unknown = [kind for kind in kinds if kind not in known]
    if not unknown or not known:
        return ""
    return f"no records of the kind {', '.join(unknown)}; there are {', '.join(sorted(known))}"


@command("similar", "evervec similar doc README.md -k 3")
@click.argument("kind")
@click.argument("id")
@click.option("-k", default=5, show_default=True, help="Number of hits.")
def similar(where: Where, kind: str, id: str, k: int, as_json: bool) -> None:
    """Find the records that are most similar to a record."""
    with where.opened() as ev:
        hits = ev.similar(kind, id, k, explain=True)
        printer = HitPrinter(ev, "")
        if as_json:
            printer.print_json(hits)
        else:
            printer.print(hits)


@command("kinds", "evervec kinds note --rescore recent")
@click.argument("kind", required=False)
@click.option(
    "--rescore",
    metavar="NAME",
    help="plain: age does not count; recent: new records rank higher; or BASE,GAIN,DAYS.",
)
def kinds(where: Where, kind: str | None, rescore: str | None, as_json: bool) -> None:
    """Show the kinds, or set how age changes the relevance of their records."""
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


def read_filters(given: tuple[str, ...]) -> dict[str, Any] | None:
    """The filter that options of the form FIELD=VALUE make."""
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
