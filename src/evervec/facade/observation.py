"""The methods of `Evervec` that say how a store does: history, failures, state."""

from __future__ import annotations

from datetime import datetime, timedelta

from evervec.errors import InvalidArgument
from evervec.facade.parts import Parts
from evervec.maintenance.history import read_history
from evervec.maintenance.summary import Summary
from evervec.model.bounds import check_limit
from evervec.model.failures import FailureGroup
from evervec.model.history import HistoryPoint
from evervec.model.reports import Sentence, WorkerState
from evervec.records.drafts import check_given, check_name


class ObservationMethods(Parts):
    """What happened in a store, and what is wrong with it."""

    def summary(self, *, all_tenants: bool = False, discreet: bool = False) -> list[Sentence]:
        """The state in sentences, the most important first: what does not work and since when, what
        failed, what waits, what is under way; in the end whether all records are searchable.
        `discreet`: without hosts, paths, accounts and other tenants, for readers who may not see
        them. It reads only what is kept or bounded; what it says of the index, of lag and of streams is as of
        the last housekeeping."""
        return Summary(
            self.store, self.index, self._lifecycle, self.attachments, self._housekeeping.alerts,
            self.models.spending.capped(), None if all_tenants else self.tenant, discreet,
        ).sentences()  # fmt: skip

    def history(
        self,
        since: datetime | timedelta | float | None = None,
        step: timedelta | float | None = None,
        kind: str | None = None,
        *,
        all_tenants: bool = False,
    ) -> list[HistoryPoint]:
        """What happened over time, as points at equal distances, the earliest first: jobs done,
        failed and retried, chunks, tokens, money, depth of the queue, freshness. `since`: a moment,
        or how long ago (a timedelta or seconds); the last hour by default. `step`: the length of a
        point, in whole minutes; chosen by default. Minutes are kept for three hours, ten minutes
        for two days, hours for three months. The cost does not depend on the size of the store.
        Workers add to it every few seconds."""
        check_given(kind=kind)
        tenant = None if all_tenants else self.tenant
        return read_history(self.store, tenant, since, step, kind)

    def failures(
        self,
        limit: int = 50,
        kind: str | None = None,
        *,
        dismissed: bool = False,
        all_tenants: bool = False,
    ) -> list[FailureGroup]:
        """Failures in groups of those that are alike, the latest first: of one kind and model, with
        messages that differ only in numbers, ids, quoted texts and paths. `dismissed`: also groups
        that were dismissed and have not failed since. The latest 300 groups of a tenant are kept,
        each until it was not seen for `keep_dead_days`."""
        check_given(kind=kind)
        tenant = None if all_tenants else self.tenant
        return self.store.failures.groups(
            tenant, kind=kind, dismissed=dismissed, limit=check_limit(limit)
        )

    def dismiss_failures(self, fingerprint: str, *, all_tenants: bool = False) -> int:
        """Hide a group of failures until it fails again; its dead letters stay. `fingerprint`: that
        of the group. Returns the number of groups: 0 if there is none."""
        check_name("fingerprint", fingerprint)
        return self.store.failures.dismiss(None if all_tenants else self.tenant, fingerprint)

    # workers
    def workers(self) -> list[WorkerState]:
        """The workers of the store that were seen in the last hour: who and where (host and process),
        how many jobs each holds and has done, and whether it is paused."""
        return self.store.workers.all()

    def pause_worker(self, worker: str) -> None:
        """Let one worker finish what it has and claim nothing more, until `resume_worker` or until it
        ends. It obeys within a second. `worker`: its name, as `workers` lists it."""
        self._set_worker_paused(worker, True)

    def resume_worker(self, worker: str) -> None:
        """Let a paused worker claim jobs again. `worker`: its name."""
        self._set_worker_paused(worker, False)

    def _set_worker_paused(self, worker: str, paused: bool) -> None:
        check_name("worker", worker)
        if not self.store.workers.set_paused(worker, paused):
            raise InvalidArgument(f"there is no worker {worker!r}: `workers` lists them")
