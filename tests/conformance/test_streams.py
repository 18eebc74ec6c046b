"""What followers of change streams share, and the versions that deletes keep meanwhile."""

from datetime import UTC, datetime

import pytest

from evervec.model.streams import FailedMessage, Stream, StreamProgress
from support.world import DAY, KIND, START, World, assert_in_step, work

NAME = "kafka:notes"
SENT = datetime.fromtimestamp(START - 5, UTC)


def _follow(world: World, name: str = NAME, kind: str = KIND) -> None:
    world.ev.store.streams.follow(Stream("default", name, kind, "{}"))


def _bad(position: int, content: bytes | None = b"{", part: str = "notes/0") -> FailedMessage:
    size = len(content or b"")
    return FailedMessage(NAME, part, position, "not JSON", b"1", content, size, sent_at=SENT)


def test_a_delete_keeps_its_version_while_a_stream_of_its_kind_is_followed(world: World) -> None:
    ev = world.ev
    _follow(world)
    for kind in (KIND, "other"):
        ev.add(kind, "one", id="1", version=1)
        ev.delete(kind, "1", version=3)
        ev.delete(kind, "never seen", version=3)
    work(ev)
    for _ in range(3):
        world.clock.move(8 * DAY)
        ev._housekeeping.sweep()
    assert not ev.add(KIND, "late", id="1", version=2).accepted
    assert not ev.add(KIND, "late", id="never seen", version=2).accepted
    assert ev.add("other", "late", id="1", version=2).accepted, "nobody follows this kind"
    assert ev.store.streams.forget("default", NAME)
    ev._housekeeping.sweep()
    assert ev.add(KIND, "late", id="1", version=2).accepted


def test_tombstones_that_are_kept_do_not_hide_those_that_are_not(world: World) -> None:
    ev = world.ev
    _follow(world)
    for n in range(7):
        ev.delete(KIND, str(n), version=1)
        ev.delete("other", str(n), version=1)
        world.clock.move(1)
    for n in range(7, 30):
        ev.delete(KIND, str(n), version=1)
    world.clock.move(8 * DAY)
    before = ev.store.now() - 7 * DAY
    gone = [ev.store.jobs.purge_history(before, limit=2) for _ in range(30)]
    assert sum(gone) == 7
    assert gone[-1] == 0
    assert ev.add("other", "late", id="3", version=1).accepted
    assert not ev.add(KIND, "late", id="3", version=1).accepted


def test_streams_are_listed_with_progress_and_failures(world: World) -> None:
    streams = world.ev.store.streams
    assert streams.states(None) == []
    _follow(world)
    _follow(world, "nats:other", "other")
    _follow(world)
    streams.report(
        "default", NAME, [StreamProgress("notes/1", 7, 3, SENT), StreamProgress("notes/0", 9, 1)]
    )
    streams.set_aside("default", [_bad(4)])
    first, second = streams.states("default")
    assert (first.name, first.kind, first.lag, first.failed) == (NAME, KIND, 4, 1)
    assert [part.part for part in first.parts] == ["notes/0", "notes/1"]
    assert first.parts[1].sent_at == SENT
    assert first.seen_at is not None
    assert (second.name, second.lag, second.failed, second.seen_at) == ("nats:other", 0, 0, None)
    assert streams.states("stranger") == []
    assert len(streams.states(None)) == 2


def test_a_report_of_a_part_that_moved_on_is_ignored(world: World) -> None:
    streams = world.ev.store.streams
    _follow(world)
    streams.report("default", NAME, [StreamProgress("notes/0", 9, 1)])
    streams.report("default", NAME, [StreamProgress("notes/0", 5, 5)])
    assert streams.states(None)[0].lag == 1
    world.clock.move(60)  # the topic was made again, and begins anew
    streams.report("default", NAME, [StreamProgress("notes/0", 2, 8)])
    assert streams.states(None)[0].lag == 8


def test_a_message_that_is_set_aside_twice_is_kept_once(world: World) -> None:
    streams = world.ev.store.streams
    _follow(world)
    streams.set_aside("default", [_bad(4), _bad(5, None), _bad(4, part="notes/1")])
    streams.set_aside("default", [_bad(4)])
    kept = streams.failed("default")
    assert [(m.part, m.position, m.content) for m in kept] == [
        ("notes/0", 4, b"{"), ("notes/0", 5, None), ("notes/1", 4, b"{"),
    ]  # fmt: skip
    assert (kept[0].sent_at, kept[0].key, kept[0].reason) == (SENT, b"1", "not JSON")
    assert kept[0].failed_at is not None
    assert streams.count_failed("default", NAME, 100) == 3
    assert streams.count_failed("default", NAME, 2) == 2
    assert streams.failed("default", NAME, after=kept[0].number, limit=1) == [kept[1]]
    assert streams.failed("default", "another") == streams.failed("stranger") == []
    assert streams.discard("stranger", [kept[0].number]) == 0
    assert streams.discard("default", [kept[0].number, kept[2].number]) == 2
    assert streams.any_failed()
    assert streams.forget("default", NAME)
    assert not streams.any_failed()
    assert not streams.forget("default", NAME)
    assert streams.find("default", NAME) is None


@pytest.mark.every_index
def test_a_record_that_comes_back_under_a_followed_kind_is_in_step(world: World) -> None:
    ev = world.ev
    _follow(world)
    ev.add(KIND, "one", id="1", version=1)
    work(ev)
    ev.delete(KIND, "1", version=2)
    work(ev)
    world.clock.move(30 * DAY)
    ev._housekeeping.sweep()
    assert ev.add(KIND, "three", id="1", version=3).accepted
    work(ev)
    assert_in_step(ev, {"1": "three"})
