"""The verdict once faults have stopped: by the oracle, and by `verify` beside it."""

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos.actors import TENANTS
from chaos.journal import Writes
from chaos.pairs import Pair
from evervec import Evervec, EvervecError, Status
from support.oracle import Key, Oracle, Problem
from support.places import query

SORTS = ("lost", "doubled", "stale", "resurrected")
_GRAVEST = ("resurrected", "doubled", "stale", "lost")
_LOOK_AGAIN = 0.1


@dataclass
class Verdict:
    """Of one pair after one lap."""

    acknowledged: int = 0
    unknown: int = 0
    records: int = 0
    dead: list[str] = field(default_factory=list)
    """dead letters, all of which were nobody's fault: no text of these programs is bad"""
    problems: list[Problem] = field(default_factory=list)
    verify: str = ""
    verify_complete: bool = True
    explained: str = ""

    @property
    def counts(self) -> Counter[str]:
        """Records by what is wrong with them; each counts once, for the gravest."""
        by_key: dict[Key | str, set[str]] = {}
        for number, problem in enumerate(self.problems):
            by_key.setdefault(problem.key or f"store {number}", set()).add(problem.sort)
        return Counter(next(s for s in _GRAVEST if s in sorts) for sorts in by_key.values())

    @property
    def oracle(self) -> str:
        return f"{len(self.problems)} problems" if self.problems else "all right"

    @property
    def agree(self) -> bool:
        return self.verify_complete == (not self.problems)


def judge(pair: Pair, journals: Sequence[Path], about: str, patience: float) -> Verdict:
    """Wait until all is done that can be, then look. Dead letters are counted and retried."""
    with pair.open() as ev:
        verdict = Verdict()
        settled = _settle(ev, pair, patience)
        for job in ev.store.jobs.page(None, status=Status.FAILED, limit=1000):
            key = Key(job.tenant, job.kind, job.record_id)
            verdict.dead.append(f"{key}: {job.error}")
        if verdict.dead:
            ev.queue_of(None).retry_failed()
            settled = _settle(ev, pair, patience)
        oracle = Oracle(about)
        if not settled:
            oracle.blame(None, f"work did not come to an end within {patience:g} s")
        writes = Writes.read(journals)
        writes.tell(oracle, ev)
        oracle.rows([(tenant, pair.table.kind) for tenant in TENANTS], pair.table.rows())
        verdict.acknowledged, verdict.unknown = writes.acknowledged, writes.unknown
        verdict.records = len(oracle.wanted)
        verdict.problems = oracle.problems(ev)
        report = ev.verify(all_tenants=True)
        verdict.verify_complete = report.complete
        verdict.verify = "complete" if report.complete else _said(report.found, report)
        if verdict.problems or not verdict.agree:
            verdict.explained = oracle.explained(ev, verdict.problems, most=50) + f"\n{report}"
        return verdict


def _said(found: dict[str, int], report: object) -> str:
    if not found:
        return f"not complete: {report}"
    return ", ".join(f"{count} {name}" for name, count in found.items())


def _settle(ev: Evervec, pair: Pair, patience: float) -> bool:
    """Whether the workers get everything done in time."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            if _is_settled(ev, pair):
                return True
        except (EvervecError, KeyError):  # connections from before a crash; a version that went
            pass
        time.sleep(_LOOK_AGAIN)
    return False


def _is_settled(ev: Evervec, pair: Pair) -> bool:
    stats = ev.store.jobs.stats(None)
    if stats.pending or stats.processing:
        return False
    if query(pair.place, "select count(*) from evervec_changes") != [(0,)]:
        return False  # rows of the attached table that no worker has seen yet
    migration = ev.migration()
    if migration is not None:
        status = migration.status()
        if not status.settled or status.awaits_switch:
            return False
    return all(c.state != "retired" for c in ev.store.versions.collections())


def keep(pair: Pair, verdict: Verdict, told: Iterable[str]) -> None:
    """What is needed to find the cause."""
    folder = pair.folder
    if isinstance(pair.place, Path) and pair.place.parent != folder:  # on a disk that goes away
        for file in pair.place.parent.glob(f"{pair.place.name}*"):
            shutil.copy(file, folder)
    (folder / "problems.txt").write_text(verdict.explained + "\n")
    (folder / "faults.txt").write_text("\n".join(told) + "\n")
