"""Failures: what goes wrong, one card for each reason, with the kinds and models that it concerns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any

from fastapi import Path, Query
from markupsafe import Markup

from evervec.model.failures import MOST_OPEN, FailureGroup, reasons_of
from evervec.server.dashboard import charts
from evervec.server.dashboard.filter_bar import compose
from evervec.server.dashboard.page_routes import Done, Pages
from evervec.server.dashboard.renderer import Values
from evervec.server.dashboard.tables import Table
from evervec.server.dashboard.words import count
from evervec.server.problems import Problem, redacted
from evervec.server.view import ReaderView, View, WriterView

router = Pages()

_MOST = 100
_COLUMN = 4
"""buckets of ten minutes in one column of a sparkline"""
_MOST_TOGETHER = 24
"""groups that one filter names, and that are dismissed together"""
_MOST_ROWS = 20
_LONGEST = 17 * _MOST_TOGETHER
Fingerprints = Annotated[str, Path(max_length=_LONGEST, pattern=r"^[0-9a-zA-Z_-]+$")]


@dataclass(frozen=True, slots=True)
class Part:
    """Groups of failures, together."""

    groups: Sequence[FailureGroup]
    """those with the most dead letters first"""

    @property
    def fingerprints(self) -> list[str]:
        """Those of the first groups."""
        found = dict.fromkeys(group.fingerprint for group in self.groups)
        return list(found)[:_MOST_TOGETHER]

    @property
    def path(self) -> str:
        """Them as a part of an address."""
        return "-".join(self.fingerprints)

    @property
    def q(self) -> str:
        """Their jobs, as a filter."""
        return compose({"status": "failed", "group": ",".join(self.fingerprints)})

    @property
    def open(self) -> str:
        """How many dead letters there are."""
        cut_off = any(group.open >= MOST_OPEN for group in self.groups)
        return f"{sum(group.open for group in self.groups):,}{'+' * cut_off}"

    @property
    def attempts(self) -> int:
        return sum(group.failed + group.retried for group in self.groups)

    @property
    def first_seen(self) -> datetime:
        return min(group.first_seen for group in self.groups)

    @property
    def last_seen(self) -> datetime:
        return max(group.last_seen for group in self.groups)

    @property
    def dismissed_at(self) -> datetime | None:
        """When the last of them was dismissed; None while some are not."""
        found = [group.dismissed_at for group in self.groups if group.dismissed_at]
        return max(found) if len(found) == len(self.groups) else None


@dataclass(frozen=True, slots=True)
class Reason:
    """Failures with the same message, as the page shows them."""

    latest: FailureGroup
    all: Part
    rows: list[Part]
    """one for each kind and model, and for platform admins each tenant"""
    spark: Markup

    @property
    def left_out(self) -> int:
        return len(self.all.groups) - len(self.rows)


@router.page("/ui/failures", "failures.html")
async def failures(
    view: ReaderView,
    kind: Annotated[str | None, Query(max_length=200)] = None,
    dismissed: bool = False,
) -> Values:
    found = await view.run(
        view.ev.failures, _MOST, kind or None, dismissed=dismissed, all_tenants=view.everyone
    )
    return {
        "reasons": [_reason(view, groups) for groups in reasons_of(found)],
        "table": Table("failures", [_row(redacted(view.caller, group)) for group in found]),
        "groups": len(found),
        "everyone": view.everyone,
        "kind": kind,
        "dismissed": dismissed,
        "most": _MOST,
    }


def _reason(view: View, alike: Sequence[FailureGroup]) -> Reason:
    """Told apart by their messages before those are redacted."""
    latest = redacted(view.caller, alike[0])
    groups = sorted(alike, key=lambda group: group.open, reverse=True)
    times = [sum(counts) for counts in zip(*(group.recent for group in groups), strict=True)]
    columns = [sum(times[n : n + _COLUMN]) for n in range(0, len(times), _COLUMN)]
    title = f"{count(sum(columns), 'failed attempt')} in the last 24 hours"
    rows = [Part([group]) for group in groups[:_MOST_ROWS]]
    return Reason(latest, Part(groups), rows, charts.spark(title, columns, "bad"))


def _row(group: FailureGroup) -> dict[str, Any]:
    return {name: value for name, value in asdict(group).items() if name != "recent"}


@router.action("/ui/failures/{fingerprint}/dismiss")
async def dismiss(view: WriterView, fingerprint: Fingerprints) -> str | Done:
    """Hide one group, or several with dashes between them."""
    wanted = list(dict.fromkeys(filter(None, fingerprint.split("-"))))
    if len(wanted) > _MOST_TOGETHER:
        raise Problem(422, f"at most {_MOST_TOGETHER} groups are dismissed together")
    async with view.audited("failures.dismiss", ", ".join(wanted)) as entry:
        changed = await view.run(_dismiss, view, wanted)
        entry.changed = changed > 0
    if not changed:
        return Done("Nothing was dismissed: this group no longer exists.", level="warn")
    if changed == 1:
        return "Dismissed: the group is hidden until it fails again. Its jobs stay as they are."
    return (
        f"Dismissed: {changed:,} groups are hidden until they fail again. "
        "Their jobs stay as they are."
    )


def _dismiss(view: View, fingerprints: Sequence[str]) -> int:
    return sum(view.ev.dismiss_failures(each, all_tenants=view.everyone) for each in fingerprints)
