"""The calls that say how a store does, with the methods of `Evervec`."""

from __future__ import annotations

from datetime import datetime, timedelta
from urllib.parse import quote

from evervec.client.connection import Call, Service, read
from evervec.client.operations import age
from evervec.model.failures import FailureGroup
from evervec.model.history import HistoryPoint
from evervec.model.reports import Sentence, WorkerState


class ObservationCalls:
    """What happened in the tenant of the key; for a platform admin without `tenant`, in all."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def summary(self) -> Call[list[Sentence]]:
        """The state in sentences, the most important first."""
        found = yield from self._service.ask("GET", "/v1/summary")
        return read(list[Sentence], found.json()["sentences"])

    def history(
        self,
        since: datetime | timedelta | float | None = None,
        step: timedelta | float | None = None,
        kind: str | None = None,
    ) -> Call[list[HistoryPoint]]:
        """What happened over time, as points at equal distances, the earliest first. `since`: a
        moment, or how long ago (a timedelta or seconds); the last hour by default. `step`: the
        length of a point, in whole minutes; chosen by default."""
        seconds = step.total_seconds() if isinstance(step, timedelta) else step
        asked = {"since": None if since is None else age(since), "step": seconds, "kind": kind}
        found = yield from self._service.ask("GET", "/v1/history", params=asked)
        return read(list[HistoryPoint], found.json()["points"])

    def failures(
        self, limit: int = 50, kind: str | None = None, *, dismissed: bool = False
    ) -> Call[list[FailureGroup]]:
        """Failures in groups of those that are alike, the latest first. `dismissed`: also groups
        that were dismissed and have not failed since."""
        asked = {"limit": limit, "kind": kind, "dismissed": "true" if dismissed else None}
        found = yield from self._service.ask("GET", "/v1/failures", params=asked)
        return read(list[FailureGroup], found.json()["failures"])

    def dismiss_failures(self, fingerprint: str) -> Call[int]:
        """Hide a group of failures until it fails again; its dead letters stay. `fingerprint`: that
        of the group. Returns the number of groups: 0 if there is none."""
        path = f"/v1/failures/{quote(fingerprint, safe='')}/dismiss"
        return int((yield from self._service.ask("POST", path)).json()["dismissed"])

    # workers
    def workers(self) -> Call[list[WorkerState]]:
        """The workers that were seen in the last hour; needs a platform admin's key."""
        found = yield from self._service.ask("GET", "/v1/workers")
        return read(list[WorkerState], found.json()["workers"])

    def pause_worker(self, worker: str) -> Call[None]:
        """Let one worker finish what it has and claim nothing more; needs a platform admin's key.
        `worker`: its name, as `workers` lists it."""
        yield from self._service.ask("POST", "/v1/workers/pause", json_body={"worker": worker})

    def resume_worker(self, worker: str) -> Call[None]:
        """Let a paused worker claim jobs again; needs a platform admin's key. `worker`: its name."""
        yield from self._service.ask("POST", "/v1/workers/resume", json_body={"worker": worker})
