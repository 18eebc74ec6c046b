"""Only the provider's answer spends an attempt; what fails around a call makes work wait."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from evervec import Evervec, IndexUnavailable, ProviderUnavailable, Status, StoreError
from support.world import KIND, World, add_all, assert_in_step, job_of, until

TEXTS = {str(n): f"text {n}" for n in range(20)}


def fails_once(
    do: Callable[..., Any], error: BaseException, thread: str = ""
) -> Callable[..., Any]:
    """A function that raises the first time that a thread of such a name calls it."""
    left = [error]

    def called(*args: Any, **kwargs: Any) -> Any:
        if left and threading.current_thread().name.startswith(thread):
            raise left.pop()
        return do(*args, **kwargs)

    return called


WHERE: dict[str, tuple[Callable[[Evervec], object], str]] = {
    "gate": (lambda ev: ev.provider._gates, "evervec-call"),
    "embed": (lambda ev: ev.provider, "evervec-call"),
    "record": (lambda ev: ev.provider, ""),
    "apply": (lambda ev: ev.index, ""),
    "finish": (lambda ev: ev.store.leases, ""),
    "load": (lambda ev: ev.store.leases, ""),
}
"""methods that fail, with whose they are and the threads in which they do"""


def make_fail(patch: pytest.MonkeyPatch, ev: Evervec, name: str, error: Exception) -> None:
    owner, thread = WHERE[name][0](ev), WHERE[name][1]
    patch.setattr(owner, name, fails_once(getattr(owner, name), error, thread))


ERRORS = [
    StoreError("the store restarts"), IndexUnavailable("away"), OSError(24, "too many open files"),
    MemoryError(),
]  # fmt: skip


def add_with_one_attempt(ev: Evervec) -> None:
    records = ({"id": id, "text": text, "max_attempts": 1} for id, text in TEXTS.items())
    list(ev.add_many(KIND, records))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", WHERE)
def test_a_worker_goes_on_after_a_failure_that_is_not_the_providers(
    memory: World, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception
) -> None:
    ev = memory.open(backoff_seconds=0.001)
    add_with_one_attempt(ev)
    make_fail(monkeypatch, ev, name, error)
    with ev.worker():
        until(ev, lambda: ev.queue.stats().done == len(TEXTS))
    assert {a.outcome for id in TEXTS for a in ev.queue.history(KIND, id)} == {"done"}
    assert_in_step(ev, TEXTS)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", WHERE)
def test_process_all_raises_it_and_gives_the_attempts_back(
    memory: World, monkeypatch: pytest.MonkeyPatch, name: str, error: Exception
) -> None:
    add_with_one_attempt(memory.ev)
    make_fail(monkeypatch, memory.ev, name, error)
    with pytest.raises(type(error)):
        memory.ev.process_all()
    jobs = memory.ev.queue.jobs()
    assert {(job.status, job.attempts) for job in jobs} == {(Status.PENDING, 0)}
    assert memory.ev.process_all().succeeded == len(TEXTS)


def test_an_outage_that_cannot_be_noted_is_still_an_outage(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is locked just when the provider goes away."""
    put = fails_once(memory.ev.store.shared.put_note, StoreError("locked"))
    monkeypatch.setattr(memory.ev.store.shared, "put_note", put)
    calls: list[int] = []

    def away(texts: Sequence[str]) -> None:
        calls.append(len(texts))
        if len(calls) < 4:
            raise ProviderUnavailable("away")

    memory.embedder.before = away
    add_with_one_attempt(memory.ev)
    memory.ev.process_all()
    memory.clock.move(60)
    memory.ev.process_all()
    memory.clock.move(60)
    memory.ev.process_all()
    assert memory.ev.queue.stats().done == len(TEXTS)
    assert {a.outcome for id in TEXTS for a in memory.ev.queue.history(KIND, id)} == {"done"}


def test_a_cache_that_cannot_be_written_keeps_nothing_from_being_written(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ev = memory.open(vector_cache_mb=1)
    monkeypatch.setattr(
        ev.store.shared, "cache", fails_once(ev.store.shared.cache, StoreError("full"))
    )
    add_all(ev, KIND, "alpha", "beta")
    assert ev.process_all().succeeded == 2


@pytest.mark.parametrize("raised", [SystemExit(3), KeyError("x"), GeneratorExit()])
def test_what_the_embedder_itself_raises_for_a_text_is_that_texts_error(
    memory: World, raised: BaseException
) -> None:
    def choke(texts: Sequence[str]) -> None:
        if "text 7" in texts:
            raise raised

    memory.embedder.before = choke
    add_with_one_attempt(memory.ev)
    result = memory.ev.process_all()
    assert (result.succeeded, result.failed) == (len(TEXTS) - 1, 1)
    assert job_of(memory.ev, "7").status is Status.FAILED


def test_a_text_whose_tokens_cannot_be_counted_is_embedded(memory: World) -> None:
    def count(text: str) -> int:
        raise ValueError("no such token")

    memory.embedder.count_tokens = count  # type: ignore[attr-defined]
    memory.embedder.max_tokens = 100  # type: ignore[attr-defined]
    add_all(memory.ev, KIND, "alpha", "beta")
    assert memory.ev.process_all().succeeded == 2
