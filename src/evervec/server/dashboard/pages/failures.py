"""Failures: what goes wrong, grouped by what it says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import Path, Query
from markupsafe import Markup

from evervec.model.failures import MOST_OPEN, FailureGroup
from evervec.server.access import ReaderView, WriterView
from evervec.server.dashboard import charts
from evervec.server.dashboard.filter_bar import compose
from evervec.server.dashboard.rendering import Values
from evervec.server.dashboard.routing import Pages
from evervec.server.dashboard.tables import Table
from evervec.server.dashboard.words import count
from evervec.server.problems import redacted

router = Pages()

_MOST = 100
_COLUMN = 4
"""buckets of ten minutes in one column of a sparkline"""
Fingerprint = Annotated[str, Path(max_length=64, pattern=r"^[0-9a-zA-Z_-]+$")]


@dataclass(frozen=True, slots=True)
class Shown:
    """A group as the page shows it."""

    group: FailureGroup
    q: str
    """its jobs, as a filter"""
    open: str
    spark: Markup


@router.page("/ui/failures", "failures.html")
async def failures(
    view: ReaderView,
    kind: Annotated[str | None, Query(max_length=200)] = None,
    dismissed: bool = False,
) -> Values:
    found = await view.run(
        view.ev.failures, _MOST, kind or None, dismissed=dismissed, all_tenants=view.everyone
    )
    groups = [redacted(view.caller, group) for group in found]
    return {
        "shown": [_shown(group) for group in groups],
        "table": Table("failures", [_row(group) for group in groups]),
        "kind": kind,
        "dismissed": dismissed,
        "most": _MOST,
    }


def _shown(group: FailureGroup) -> Shown:
    columns = [sum(group.recent[n : n + _COLUMN]) for n in range(0, len(group.recent), _COLUMN)]
    title = f"{count(sum(columns), 'failed attempt')} in the last 24 hours"
    waiting = f"{MOST_OPEN:,}+" if group.open >= MOST_OPEN else f"{group.open:,}"
    q = compose({"status": "failed", "group": group.fingerprint})
    return Shown(group, q, waiting, charts.spark(title, columns, "bad"))


def _row(group: FailureGroup) -> dict[str, Any]:
    return {name: value for name, value in asdict(group).items() if name != "recent"}


@router.action("/ui/failures/{fingerprint}/dismiss")
async def dismiss(view: WriterView, fingerprint: Fingerprint) -> str:
    async with view.audited("failures.dismiss", fingerprint) as entry:
        changed = await view.run(view.ev.dismiss_failures, fingerprint, all_tenants=view.everyone)
        entry.changed = changed > 0
    if not changed:
        return "Nothing was dismissed: this group no longer exists."
    return "Dismissed: the group is hidden until it fails again. Its jobs stay as they are."
