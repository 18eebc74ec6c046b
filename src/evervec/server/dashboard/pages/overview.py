"""The overview: the state in words, then how fast and how much."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from markupsafe import Markup

from evervec.maintenance.summary import ALIVE_SECONDS
from evervec.model.history import HistoryPoint, sum_points
from evervec.server.dashboard import charts
from evervec.server.dashboard.charts import Series
from evervec.server.dashboard.commands import cli
from evervec.server.dashboard.page_routes import Pages
from evervec.server.dashboard.renderer import Values
from evervec.server.dashboard.tables import Table
from evervec.server.dashboard.words import brief, money, number
from evervec.server.keys import Role
from evervec.server.view import ReaderView, View

router = Pages()

Range = Literal["hour", "day", "week", "month"]


@dataclass(frozen=True, slots=True)
class Span:
    """A range of time that the charts show."""

    name: str
    seconds: int
    step: int
    each: str
    point: str
    """how long a point is, in words"""
    label: str
    """how a point's time is written"""


SPANS = {
    "hour": Span("Hour", 3600, 60, "minute", "a minute", "%H:%M"),
    "day": Span("Day", 86400, 600, "10 minutes", "10 minutes", "%H:%M"),
    "week": Span("Week", 7 * 86400, 3600, "hour", "an hour", "%a %H:%M"),
    "month": Span("30 days", 30 * 86400, 6 * 3600, "6 hours", "6 hours", "%b %d"),
}
TOPICS = {
    # where more is said about a topic of the state
    "provider": "workers", "queue": "jobs", "failures": "failures", "tables": "tables",
    "workers": "workers", "migration": "versions", "records": "records", "lag": "jobs",
}  # fmt: skip


@router.page("/", "overview.html")
async def overview(view: ReaderView, range: Range = "hour") -> Values:
    span = SPANS[range]
    sentences = await view.run(
        view.ev.summary, all_tenants=view.everyone, discreet=view.caller.role is not Role.ADMIN
    )
    tenant = None if view.everyone else view.tenant
    points = await view.run(view.ev.history, span.seconds, span.step, all_tenants=view.everyone)
    return {
        "backlog": await view.run(view.ev.store.jobs.backlog, tenant),
        "sentences": sentences,
        "level": sentences[0].level,
        "topics": TOPICS,
        "is_empty": await view.run(_is_empty, view),
        "range": range,
        "spans": SPANS,
        "span": span,
        "total": sum_points(points),
        "drawn": _charts(points, span),
        "table": Table("history", [_row(point) for point in points]),
        "workers": await view.run(_live_workers, view),
        "begin": _begin(view, str(view.request.base_url).rstrip("/")),
    }


def _live_workers(view: View) -> int:
    now = view.ev.store.now()
    return sum(
        now - each.seen_at.timestamp() < ALIVE_SECONDS for each in view.ev.store.workers.all()
    )


def _begin(view: View, address: str) -> list[tuple[str, str]]:
    """Commands that add a first record."""
    needs_key = view.caller.key is not None
    header = "  -H 'Authorization: Bearer KEY' \\\n" if needs_key else ""
    key = ', "KEY"' if needs_key else ""
    request = f"""curl -X POST {address}/v1/records \\
{header}  -H 'Content-Type: application/json' \\
  -d '{{"kind": "note", "text": "The first note"}}'"""
    program = f"""import evervec

client = evervec.Client("{address}"{key})
client.add("note", "The first note")"""
    found = [("Over HTTP", request), ("In Python", program)]
    if evervec := cli(view):
        # without embedding it here: this process may have another model than the service
        command = f'echo "The first note" > first.txt\n{evervec} add --no-embed note first.txt'
        found.insert(0, ("On the command line", command))
    return found


def _is_empty(view: View) -> bool:
    """Whether there was never a record, so that the page shows how to begin."""
    if view.everyone:
        return not view.ev.store.versions.collections()
    return not view.ev.store.versions.kinds(view.tenant)


def _charts(points: list[HistoryPoint], span: Span) -> list[Markup]:
    labels = [_label(point.at, span) for point in points]
    per = f"per {span.each}"
    has_cost = any(point.money for point in points)
    spend = (
        Series("money", [point.money for point in points], "d")
        if has_cost
        else Series("tokens", [point.tokens for point in points], "d")
    )
    return [
        charts.lines(
            "Freshness: from save to searchable",
            labels,
            [
                Series("p50", [point.freshness_p50 for point in points], "a"),
                Series("p99", [point.freshness_p99 for point in points], "c"),
            ],
            brief,
        ),
        charts.bars(
            f"Throughput: jobs {per}",
            labels,
            [
                Series("done", [point.done for point in points], "b"),
                Series("retried", [point.retried for point in points], "c"),
                Series("failed", [point.failed for point in points], "bad"),
            ],
        ),
        charts.lines(
            "Depth: jobs that wait or are in progress",
            labels,
            [Series("jobs", [point.depth for point in points], "a")],
        ),
        charts.bars(
            f"Spend: {'money' if has_cost else 'tokens'} {per}",
            labels,
            [spend],
            money if has_cost else number,
        ),
    ]


def _label(at: datetime, span: Span) -> str:
    return at.strftime(span.label)


def _row(point: HistoryPoint) -> dict[str, Any]:
    names = (
        "at", "seconds", "done", "failed", "retried", "deleted", "chunks_embedded", "chunks_reused",
        "tokens", "money", "depth", "freshness_p50", "freshness_p99",
    )  # fmt: skip
    return {name: getattr(point, name) for name in names}
