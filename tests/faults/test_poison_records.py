"""A record that cannot be embedded, or that takes its worker down."""

import signal
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from evervec import Evervec, InvalidInput, Status, open
from evervec.embedders.hashing import HashingEmbedder
from support.fault_checks import assert_true_to, outcomes, settle
from support.places import Place
from support.process_worker import DIMENSIONS
from support.processes import Child, Start, until

NOTES = {str(n): f"note {n} about the orchard {n} and the barn {n}" for n in range(60)}


class Poisoned(HashingEmbedder):
    """Fails whenever a text with poison is in the call."""

    max_batch = 32

    def __init__(self, how: str) -> None:
        super().__init__(DIMENSIONS)
        self._how = how

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = super().embed(texts)
        poisoned = [place for place, text in enumerate(texts) if "poison" in text]
        if not poisoned:
            return vectors
        if self._how == "refuses":
            raise InvalidInput(poisoned, "this is not food")
        if self._how == "raises":
            raise RuntimeError("it burns")
        if self._how == "answers short":
            return vectors[:-1]
        vectors[poisoned] = np.nan if self._how == "answers nan" else 0.0
        return vectors


@pytest.mark.parametrize(
    "how", ["refuses", "raises", "answers short", "answers nan", "answers zero"]
)
def test_a_poison_record_in_a_batch_fails_alone(path: Place, how: str) -> None:
    """All others are embedded in the same pass, without an attempt lost."""
    with open(path, embedder=Poisoned(how), max_attempts=2, backoff_seconds=0.001) as ev:
        list(ev.add_many("note", ({"id": id, "text": text} for id, text in NOTES.items())))
        bad = ev.add("note", "pure poison", id="bad", priority=0)
        settle(ev)
        assert [job.job_id for job in ev.queue.failed()] == [bad.job_id]
        job = ev.queue.get(bad.job_id)
        assert job is not None
        assert job.error
        spent = 1 if how == "refuses" else 2  # a refusal is final
        assert job.attempts == spent
        for id in NOTES:
            assert outcomes(ev, id) == ["done"]
        assert ev.get("note", "bad") is not None  # kept, and found by its words
        assert [hit.id for hit in ev.search("poison", mode="text")] == ["bad"]
        ev.add("note", "cured by now", id="bad")
        settle(ev)
        assert_true_to(ev, path, {**NOTES, "bad": "cured by now"})


def test_a_poisoned_update_leaves_the_old_version_to_serve(path: Place) -> None:
    """What cannot be embedded does not take what could be from the index."""
    with open(path, embedder=Poisoned("raises"), max_attempts=1) as ev:
        ev.add("note", "wholesome", id="a")
        settle(ev)
        ev.add("note", "poison", id="a")
        settle(ev)
        assert ev.queue.stats().failed == 1
        assert ev.search("wholesome", mode="semantic")[0].id == "a"


@pytest.mark.parametrize(("max_attempts", "batch_size"), [(3, 256), (2, 16), (1, 256)])
def test_a_record_that_kills_its_worker_is_buried_alone(
    ev: Evervec, path: Place, start: Start, max_attempts: int, batch_size: int
) -> None:
    """It dies with every worker that embeds it, and becomes a dead letter by the number of its
    deliveries; those that were claimed with it are embedded all the same."""
    records = [{"id": id, "text": text, "max_attempts": max_attempts} for id, text in NOTES.items()]
    deadly = {"id": "bad", "text": "the deadly note", "max_attempts": max_attempts}
    list(ev.add_many("note", [*records[:30], deadly, *records[30:]]))
    settings = {"lease_seconds": 0.3, "batch_size": batch_size, "backoff_seconds": 0.01}

    deaths = 0
    while not _emptied_by(start("work", path, settings=settings, deadly="deadly"), ev):
        deaths += 1
        assert deaths < 10, "workers go on dying"
    assert [job.record_id for job in ev.queue.failed()] == ["bad"]
    job = ev.queue.status("note", "bad")
    assert job is not None
    assert job.status is Status.FAILED
    assert job.attempts == deaths >= max_attempts
    assert outcomes(ev, "bad") == ["crashed"] * deaths
    assert "did not finish attempt" in (job.error or "")
    assert ev.get("note", "bad") is not None

    ev.queue.retry(job.job_id)  # here nothing dies of it
    settle(ev)
    assert_true_to(ev, path, {**NOTES, "bad": "the deadly note"})


def _emptied_by(worker: Child, ev: Evervec) -> bool:
    """Wait until the queue is empty, or the worker is dead."""

    def empty() -> bool:
        stats = ev.queue.stats()
        return stats.pending == stats.processing == 0

    until(lambda: empty() or not worker.running, "the end of the queue or of the worker")
    if not empty():
        assert worker.exit_code() == -signal.SIGKILL, worker.log
        return False
    return True
