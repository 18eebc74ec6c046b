"""Attached tables, as workers and searches use them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from evervec.model import Job
from evervec.sources.base import Attached, Attachment, Source

_FOLDED_AT_ONCE = 5000
_FILLED_AT_ONCE = 1000


class Tables:
    """What is attached to a store, read anew whenever something is folded or asked for."""

    def __init__(self, source: Source | None) -> None:
        self.source = source

    def follow(self) -> int:
        """Make jobs of what changed in the tables since; how many changes there were."""
        return self.source.fold(_FOLDED_AT_ONCE) if self.source else 0

    def backfill(self, priority: int) -> int:
        """Enqueue a slice of the rows that were there before."""
        return self.source.backfill(_FILLED_AT_ONCE, priority) if self.source else 0

    def attached(self) -> list[Attached]:
        return self.source.attached() if self.source else []

    def trouble(self, attachment: Attachment) -> str | None:
        """What of a table is no longer as it was attached."""
        return self.source.trouble(attachment) if self.source else None

    def by_kind(self) -> dict[str, Attachment]:
        return {attached.attachment.kind: attached.attachment for attached in self.attached()}

    def rows(self, kind: str, ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """The rows behind some records of a kind, whole."""
        attachment = self.by_kind().get(kind)
        if self.source is None or attachment is None:
            return {}
        return self.source.rows(attachment, ids, whole=True)

    def rows_of(
        self, jobs: Sequence[Job]
    ) -> dict[int, tuple[Attachment, Mapping[str, Any] | None]]:
        """By job, its attachment and its row as it is now; None for a row that is gone, or is
        another tenant's. Jobs of kinds that are not attached are left out."""
        if self.source is None or not jobs:
            return {}
        wanted: dict[str, list[Job]] = defaultdict(list)
        for job in jobs:
            wanted[job.kind].append(job)
        found: dict[int, tuple[Attachment, Mapping[str, Any] | None]] = {}
        for kind, attachment in self.by_kind().items():
            mine = wanted.get(kind, [])
            rows = self.source.rows(attachment, [job.record_id for job in mine]) if mine else {}
            for job in mine:
                row = rows.get(job.record_id)
                if row is not None and attachment.tenant_of(row) != job.tenant:
                    row = None
                found[job.job_id] = (attachment, row)
        return found
