"""Deadlines without an engine: clocks, nesting, locks, interrupts, and Python's own loops."""

import threading

import pytest

from evervec import DeadlineExceeded, InvalidArgument, deadline
from evervec.chunking import SizeChunker
from evervec.errors import Cancelled
from evervec.model.deadlines import (
    Deadline,
    bounded,
    check,
    current,
    exceeded,
    holding,
    interrupting,
    left,
)
from support.world import KIND, PATIENCE, Clock, World, paragraph


def test_it_is_over_when_its_time_is_and_not_before() -> None:
    clock = Clock(0.0)
    with deadline(5, clock):
        check()
        assert (left(), left(2.0)) == (5.0, 2.0)
        clock.move(5)
        assert left(2.0) == 0.0
        assert isinstance(exceeded(), DeadlineExceeded)
        with pytest.raises(DeadlineExceeded, match="deadline of 5 s"):
            check()
    check()
    assert (current(), exceeded(), left(3.0)) == (None, None, 3.0)


def test_the_earlier_of_two_is_in_force() -> None:
    clock = Clock(0.0)
    with deadline(5, clock) as outer:
        with deadline(60, clock) as inner:
            assert inner is outer
        with deadline(1, clock):
            clock.move(2)
            with pytest.raises(DeadlineExceeded, match="deadline of 1 s"):
                check()
        check()


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_no_deadline_lies_in_the_past(seconds: float) -> None:
    with pytest.raises(InvalidArgument), deadline(seconds):
        pass


def test_a_lock_is_waited_for_no_longer_than_the_deadline() -> None:
    lock = threading.Lock()
    with holding(lock), deadline(0.01), pytest.raises(DeadlineExceeded), holding(lock):
        pass
    with deadline(PATIENCE), holding(lock):
        assert lock.locked()
    assert not lock.locked()


def test_what_works_past_its_end_is_interrupted_until_it_stops() -> None:
    calls, enough = [], threading.Event()

    def interrupt() -> None:
        calls.append(1)
        if len(calls) == 3:
            enough.set()
        raise RuntimeError("cannot be interrupted just now")

    clock = Clock(0.0)
    with deadline(1, clock), interrupting(interrupt):
        assert calls == []
        clock.move(1)
        assert enough.wait(PATIENCE)
    seen = len(calls)
    with bounded(Deadline(0)), pytest.raises(DeadlineExceeded), interrupting(interrupt):
        pass
    assert len(calls) == seen


def test_a_cancelled_call_says_why() -> None:
    ends = Deadline(PATIENCE)
    with bounded(ends):
        ends.cancel("the client is gone")
        ends.cancel("a later reason")
        assert left() == 0.0
        with pytest.raises(Cancelled, match="the client is gone"):
            check()


def test_pieces_of_a_text_are_not_looked_at_past_the_deadline(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop over the pieces of a long text reads nothing, so it must look itself."""
    memory.ev.add(KIND, "tea " + " ".join(paragraph(f"w{n}") for n in range(20)), id="1")
    clock, split, pieces = Clock(0.0), SizeChunker.split, 0

    def slow(chunker: SizeChunker, text: str) -> object:
        nonlocal pieces
        for piece in split(chunker, text):
            pieces += 1
            clock.move(1)
            yield piece

    monkeypatch.setattr(SizeChunker, "split", slow)
    with pytest.raises(DeadlineExceeded), deadline(3, clock):
        memory.ev.search("tea w19", mode="text")  # which are in different pieces
    assert pieces == 3


def test_a_provider_is_given_half_of_the_time_and_not_blamed(memory: World) -> None:
    """A client with a short deadline must not make others' searches do without vectors."""
    memory.ev.add(KIND, "tea", id="1")
    memory.ev.process_all()
    clock = Clock(0.0)

    def slow(_: object) -> None:
        clock.move(6)
        check()

    memory.embedder.before = slow
    with deadline(10, clock):
        assert memory.ev.search("tea").via == "text"
    with pytest.raises(DeadlineExceeded), deadline(5, clock):
        memory.ev.search("tea")
    memory.embedder.before = None
    assert memory.ev.search("tea").via == "hybrid"
    assert memory.ev.provider.gate() is None
