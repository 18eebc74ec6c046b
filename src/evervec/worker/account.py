"""What a worker has done so far, and who is told while it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from evervec.model.reports import ProcessResult
from evervec.worker.batch import Call, Reached, Written


@dataclass(slots=True)
class Account:
    """The sums of one run."""

    progress: Callable[[int], object] = lambda _: None
    """called with the jobs of each batch that was written"""
    watch: Callable[[Reached], object] = lambda _: None
    """called after each provider call"""
    total: Written = field(default_factory=Written)
    reached: Reached = field(default_factory=Reached)

    def take(self, call: Call) -> None:
        """Count a provider call that ended."""
        self.reached.embedded += 0 if call.answer is None else len(call.rows)
        self.watch(self.reached)

    def add(self, written: Written) -> None:
        self.total.add(written)
        self.progress(written.processed)

    def result(self) -> ProcessResult:
        done = self.total
        return ProcessResult(done.processed, done.succeeded, done.failed, done.errors)
