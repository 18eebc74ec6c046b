"""The caller's trace is carried through the queue of every store to the worker."""

import pytest

from evervec import InvalidInput
from support.traces import traced
from support.world import KIND, World, work


@pytest.mark.parametrize("boxed", [False, True])
def test_a_worker_goes_on_with_the_trace_of_whoever_added_the_record(
    world: World, boxed: bool
) -> None:
    with traced() as traces:
        with traces.tracer.start_as_current_span("the caller"):
            world.ev.add(KIND, "first", id="1", boxed=boxed)
        world.ev.add(KIND, "nobody's", id="2")
        work(world.ev)
        assert traces.above("evervec write") == ["evervec write", "evervec job", "the caller"]
        assert len(traces.ids) == 1
        with traces.tracer.start_as_current_span("a later caller"):
            list(world.ev.add_many(KIND, [{"id": "1", "text": "second"}]))
        work(world.ev)
        assert traces.above("evervec embed")[-1] == "a later caller"


def test_a_failure_is_seen_in_the_trace(world: World) -> None:
    def refuse(texts: object) -> None:
        raise InvalidInput([0], "not this one")

    world.embedder.before = refuse
    with traced() as traces:
        with traces.tracer.start_as_current_span("the caller"):
            world.ev.add(KIND, "bad", id="1")
        work(world.ev)
        span = traces.spans["evervec job"]
    assert not span.status.is_ok
    assert "not this one" in str(span.status.description)


def test_what_is_added_outside_of_a_trace_has_none(world: World) -> None:
    with traced() as traces:
        world.ev.add(KIND, "plain", id="1")
        work(world.ev)
        assert traces.spans == {}
