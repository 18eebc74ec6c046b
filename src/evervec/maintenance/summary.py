"""The state of a store in sentences, the most important first.

It asks only what is known without reading tables: gates of providers, pauses, counts that are kept or
bounded, alerts of the last housekeeping, groups of failures, versions and workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evervec.errors import StoreClosed, StoreError
from evervec.indexes.base import Index
from evervec.maintenance.alerts import Alerts
from evervec.model.basics import as_datetime
from evervec.model.failures import MOST_OPEN, FailureGroup, reasons_of
from evervec.model.history import EVERY_TENANT
from evervec.model.phrases import clock_time, counted, duration, shortened
from evervec.model.reports import Gate, Sentence, WorkerState
from evervec.stores import notes
from evervec.stores.base import Store
from evervec.stores.base.jobs import MOST_COUNTED, Backlog
from evervec.tables.tables import Tables
from evervec.versions.lifecycle import VersionLifecycle
from evervec.versions.pace import done_since, jobs_per_second

LEVELS = ("bad", "warn", "info", "ok")
ALIVE_SECONDS = 60.0
"""a worker that was not seen for so long counts as gone"""
_PUSH_SECONDS = 180
_SHORT_PAUSE = 60.0
"""a provider's pause that the pace of the last minutes includes"""
_GROUPS = 3
_GROUPS_READ = 50
_LONGEST_REASON = 80
_MANY = 1000
"""open jobs for which the time left is told"""
_LONGEST = 200
_ALERTS = {
    "index": "bad", "lag": "warn", "streams": "warn", "streams waiting": "bad",
    "streams unfollowed": "warn", "transaction": "warn",
}  # fmt: skip
"""the alerts that become sentences, and how bad they are; others are told from what they are about"""
_TOPICS = {
    "transaction": "database", "streams waiting": "streams", "streams unfollowed": "streams"
}  # fmt: skip


@dataclass(eq=False, repr=False)
class Summary:
    """What is to be said about a store, for one tenant or for all.

    `discreet`: for readers who may not see hosts, paths, accounts or other tenants.
    """

    _store: Store
    _index: Index
    _lifecycle: VersionLifecycle
    _tables: Tables
    _alerts: Alerts
    _capped: str | None
    _tenant: str | None
    _discreet: bool = False

    def sentences(self) -> list[Sentence]:
        """Never empty; the worst first, and of those as bad in this order."""
        self._now = self._store.now()
        self._backlog = self._store.jobs.backlog(self._tenant)
        self._workers = self._store.workers.all()
        self._paused_tenants = self._store.jobs.paused_tenants()
        self._shut = list(self._gates())
        self._unread = not self._discreet and self._tables.waiting()
        self._noun = self._job_noun()
        found = [
            *self._providers(), *self._raised(), *self._unworked(), *self._attached(),
            *self._paused(), *self._failures(), *self._quotas(), *self._lost_workers(),
            *self._migration(), *self._builds(),
        ]  # fmt: skip
        if not any(self._wait() in sentence.text for sentence in found):  # it is not said yet
            found += self._waiting()
        found += self._records()
        return sorted(found, key=lambda sentence: LEVELS.index(sentence.level))

    # what keeps work from being done
    def _providers(self) -> Iterator[Sentence]:
        alike: dict[tuple[str, str], list[tuple[str, Gate]]] = {}
        for name, gate in self._shut:
            alike.setdefault((gate.state, gate.reason), []).append((name, gate))
        waiting = f"; {self._wait()}"  # said once: it is not known of each provider
        for (state, said), shut in alike.items():
            one = self._discreet or len(shut) == 1
            who = "The embedding provider" if self._discreet else _listed([n for n, _ in shut])
            reason = "" if self._discreet else f": {shortened(said, _LONGEST)}"
            began = min(gate.since for _, gate in shut)
            if state == "outage":
                since = clock_time(began, self._now)
                lost = "; none is lost" if waiting else ""
                text = f"{who} {'is' if one else 'are'} unavailable since {since}{reason}{waiting}{lost}."
                yield self._sentence("bad", "provider", text, began)
            else:
                left = duration(max(0.0, max(gate.until for _, gate in shut) - self._now))
                text = f"{who} asked for a pause of {left} more{reason}{waiting}."
                yield self._sentence("warn", "provider", text, began)
            if self._discreet:
                break
            waiting = ""
        if self._capped is not None:
            why = "its daily cap is reached" if self._discreet else self._capped
            yield self._sentence("warn", "provider", f"Embedding is paused: {why}{waiting}.")

    def _gates(self) -> Iterator[tuple[str, Gate]]:
        """The shut gates, by provider and model, of all versions of the store."""
        specs = [c.spec for c in self._store.versions.collections() if c.state != "retired"]
        for provider, model in sorted({(s.provider, s.model) for s in specs if s}):
            gate = notes.GATE.of(f"{provider} {model}".strip()).get(self._store.shared)
            if gate is not None:
                yield f"{provider}:{model}".rstrip(":"), gate

    def _unworked(self) -> Iterator[Sentence]:
        alive = [w for w in self._workers if self._is_alive(w)]
        if idle := [w.worker for w in alive if w.paused and not self._discreet]:
            who = f"{idle[0]} is" if len(idle) == 1 else f"{len(idle)} workers are"
            hint = f"resume with `evervec workers --resume {idle[0]}`"
            yield self._sentence("warn", "workers", f"{who} paused.", hint=hint)
        if self._is_unworked(alive):
            yield self._sentence(
                "bad", "workers", f"No worker is running; {self._wait()}.",
                hint="start one with `evervec worker`",
            )  # fmt: skip

    def _is_unworked(self, alive: Sequence[WorkerState]) -> bool:
        """Whether nobody does what waits; in push mode, jobs are done without a worker."""
        if not (self._backlog.pending or self._unread) or not all(w.paused for w in alive):
            return False
        return not done_since(self._store, _PUSH_SECONDS)

    def _paused(self) -> Iterator[Sentence]:
        paused = self._paused_tenants
        if EVERY_TENANT in paused:
            text = f"The queue is paused; {self._wait()}."
            yield self._sentence("warn", "queue", text, hint="resume it with `evervec resume`")
        mine = paused & {self._tenant} if self._tenant else paused - {EVERY_TENANT}
        if mine:
            names = sorted(mine)
            more = f" and {len(names) - _GROUPS} more" if len(names) > _GROUPS else ""
            who = ", ".join(names[:_GROUPS]) + more
            yield self._sentence(
                "warn", "queue", f"{'Tenants are' if len(names) > 1 else 'A tenant is'} paused: {who}.",
                hint=f"resume with `evervec --tenant {names[0]} resume`",
            )  # fmt: skip

    def _quotas(self) -> Iterator[Sentence]:
        if self._tenant is None:
            return
        until = self._store.tenants.usage(self._tenant).waits_until
        if until is not None:
            text = f"Today's quota is used up: jobs wait until {until:%H:%M} UTC."
            yield self._sentence("warn", "quota", text)

    # what housekeeping found
    def _raised(self) -> Iterator[Sentence]:
        for episode in self._alerts.lasting():
            level = _ALERTS.get(episode.name)
            if level is None:
                continue
            text = _capital(shortened(episode.text, _LONGEST))
            if self._discreet:
                if episode.name != "index":
                    continue
                text = "The vector index is unavailable"
            topic = _TOPICS.get(episode.name, episode.name)
            yield self._sentence(level, topic, f"{text}.", episode.since)

    def _attached(self) -> Iterator[Sentence]:
        if self._discreet:
            return
        try:
            for kind, trouble in self._tables.alarms():
                text = f"The table of {kind}: {shortened(trouble, _LONGEST)}."
                yield self._sentence("bad", "tables", text, hint="see `evervec tables`")
        except StoreClosed:
            raise
        except StoreError as error:
            text = f"Attached tables cannot be checked: {shortened(str(error), _LONGEST)}."
            yield self._sentence("warn", "tables", text)

    def _failures(self) -> Iterator[Sentence]:
        failed = self._backlog.failed
        if not failed:
            return
        found = self._store.failures.groups(
            self._tenant, kind=None, dismissed=True, limit=_GROUPS_READ
        )
        groups = [group for group in found if group.open]
        reasons = reasons_of(groups)
        parts = [_reason(reason) for reason in reasons[:_GROUPS]]
        if more := len(reasons) - _GROUPS:
            parts += [f"{more} more reason{'s' * (more > 1)}"] if more > 0 else []
        why = "" if self._discreet or not parts else f" ({'; '.join(parts)})"
        text = f"{_capital(self._count(failed))} failed and {_wait_verb(failed)} for you{why}."
        since = None
        if groups and len(found) < _GROUPS_READ:  # otherwise another may be older
            since = min(group.first_seen.timestamp() for group in groups)
        yield self._sentence("bad", "failures", text, since, "see `evervec failures`")

    def _lost_workers(self) -> Iterator[Sentence]:
        lost = [w for w in self._workers if not self._is_alive(w)]
        if not lost or self._discreet:
            return
        last = max(w.seen_at.timestamp() for w in lost)
        who = lost[0].worker if len(lost) == 1 else f"{len(lost)} workers"
        text = (
            f"{who} {'was' if len(lost) == 1 else 'were'} last seen at "
            f"{clock_time(last, self._now)}; {'its' if len(lost) == 1 else 'their'} jobs are "
            "taken over by others."
        )
        yield self._sentence("warn", "workers", text, last)

    # what is under way
    def _migration(self) -> Iterator[Sentence]:
        name = self._lifecycle.current()
        if name is None:
            return
        pairs = self._lifecycle.pairs(name)
        building = [pair.new for pair in pairs if pair.new.state == "building"]
        if not building:
            text = f"{name} serves; the version before it is kept for a rollback."
            hint = "drop it with `evervec migrate --retire`"
            yield self._sentence("info", "migration", text, hint=hint)
            return
        open_jobs = sum(self._store.jobs.open_jobs(c.version) for c in building)
        if not all(self._lifecycle.is_filled(c) for c in building):
            left = f"records are being enqueued, {_many(open_jobs, 'job')} so far"
        elif open_jobs:
            left = f"{_many(open_jobs, 'job')} left{self._time_left(open_jobs)}"
        else:
            left = "complete, ready to switch"
        yield self._sentence("info", "migration", f"Migration to {name}: {left}.")

    def _builds(self) -> Iterator[Sentence]:
        mine = None if self._tenant is None else self._store.versions.kinds(self._tenant)
        for build in self._index.builds():
            if mine is not None and build.kind not in mine:
                continue
            left = build.seconds_left
            more = "" if left is None else f", about {duration(left)} left"
            text = f"The vector index of {build.kind} is being built: {build.done:.0%}{more}."
            yield self._sentence("info", "index", text)

    def _time_left(self, jobs: int) -> str:
        """At the pace of the last minutes, which says nothing once jobs are held up."""
        if self._are_held_up() or not done_since(self._store, _PUSH_SECONDS):
            return ""
        if pace := jobs_per_second(self._store):
            return f", about {duration(jobs / pace)} at the present pace"
        return ""

    def _are_held_up(self) -> bool:
        if self._capped is not None or EVERY_TENANT in self._paused_tenants:
            return True
        if any(g.state == "outage" or g.until > self._now + _SHORT_PAUSE for _, g in self._shut):
            return True
        alive = [worker for worker in self._workers if self._is_alive(worker)]
        return bool(alive) and all(worker.paused for worker in alive)

    def _waiting(self) -> Iterator[Sentence]:
        open_jobs = self._backlog.pending + self._backlog.processing
        alive = [w for w in self._workers if self._is_alive(w)]
        if (open_jobs or self._unread) and (alive or not self._is_unworked(alive)):
            left = self._time_left(open_jobs) if open_jobs > _MANY else ""
            text = f"{_capital(self._wait(open_jobs))}{left}."
            yield self._sentence("info", "queue", text)

    def _records(self) -> Iterator[Sentence]:
        if self._tenant is None:
            records = self._store.tenants.records_in_all()
        else:
            records = self._store.tenants.usage(self._tenant).records
        if not records:
            hint = None if self._unread else "add one with `evervec add` or `ev.add`"
            level = "info" if self._unread else "ok"
            yield self._sentence(level, "records", "There are no records yet.", hint=hint)
        elif self._backlog == Backlog(0, 0, 0) and not self._unread:
            all_ = "The one record is" if records == 1 else f"All {records:,} records are"
            yield self._sentence("ok", "records", f"{all_} searchable.")
        else:
            yield self._sentence("info", "records", f"{counted(records, 'record')} in all.")

    # wording
    def _is_alive(self, worker: WorkerState) -> bool:
        return self._now - worker.seen_at.timestamp() < ALIVE_SECONDS

    def _job_noun(self) -> str:
        """What to call a job: a record has one for each version that is kept up to date."""
        kept = [c.kind for c in self._store.versions.collections() if c.state != "retired"]
        return "record" if len(kept) == len(set(kept)) else "job"

    def _count(self, jobs: int) -> str:
        return _many(jobs, self._noun)

    def _wait(self, count: int | None = None) -> str:
        jobs = self._backlog.pending if count is None else count
        rows = "rows of attached tables wait" if self._unread else ""
        waiting = f"{self._count(jobs)} {_wait_verb(jobs)}" if jobs else ""
        return " and ".join(filter(None, [waiting, rows])) or "nothing waits"

    def _sentence(
        self, level: str, topic: str, text: str, since: float | None = None, hint: str | None = None
    ) -> Sentence:
        return Sentence(level, topic, text, as_datetime(since), hint)


def _many(count: int, noun: str) -> str:
    """A count that may have been cut off."""
    return f"over {MOST_COUNTED:,} {noun}s" if count == MOST_COUNTED else counted(count, noun)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _wait_verb(count: int) -> str:
    return "waits" if count == 1 else "wait"


def _listed(names: Sequence[str]) -> str:
    """Some names, the last after an "and"."""
    shown = [*names[:_GROUPS], *([f"{len(names) - _GROUPS} more"] if len(names) > _GROUPS else [])]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def _reason(groups: Sequence[FailureGroup]) -> str:
    """Why some failed, for example "25 of note and page: no such model"."""
    cut_off = any(group.open >= MOST_OPEN for group in groups)
    count = f"{sum(group.open for group in groups):,}{'+' * cut_off}"
    kinds = _listed(sorted({group.kind for group in groups}))
    return f"{count} of {kinds}: {shortened(groups[0].title, _LONGEST_REASON)}"
