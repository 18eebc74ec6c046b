"""A follower commits what is durable, waits for the store, and sets aside what it cannot read."""

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from evervec import EvervecError, InvalidArgument, StoreError
from evervec.integrations.streams import Follower, MessageMapping, retry
from evervec.integrations.streams.message import Message, Source, SourceUnavailable
from evervec.maintenance.metrics import exposition, stream_metrics
from evervec.model.streams import StreamProgress
from evervec.model.usage import Limits
from support.world import KIND, World, assert_in_step, work

NAME = "list:notes"
BY_FIELD = MessageMapping.of(KIND, version="rev", op="op")


class ListSource:
    """A stream in memory: what is not committed comes again when it is opened again."""

    def __init__(self, values: Iterable[Any]) -> None:
        self.messages = [
            Message("notes/0", n, None, v if isinstance(v, bytes) else json.dumps(v).encode())
            for n, v in enumerate(values)
        ]
        self.committed = 0
        self.held = 0
        self.closed = 0
        self.created = "once"
        self.went_back = False
        self.before: Callable[[str], object] = lambda what: None
        self._next = 0

    def open(self) -> Source:
        self.before("open")
        self._next = self.committed
        return self

    def identity(self) -> str:
        return self.created

    def is_behind(self, positions: Mapping[str, int]) -> bool:
        known = positions.get("notes/0", -1)
        return self.went_back or known >= len(self.messages)

    def fetch(self, most: int, seconds: float) -> Sequence[Message]:
        self.before("fetch")
        found = self.messages[self._next : self._next + most]
        self._next += len(found)
        return found

    def commit(self, messages: Sequence[Message]) -> None:
        self.before("commit")
        self.committed = max(self.committed, messages[-1].position + 1)

    def hold(self, messages: Sequence[Message]) -> None:
        self.held += 1
        self.before("hold")

    def progress(self) -> Sequence[StreamProgress]:
        lag = len(self.messages) - self.committed
        return [StreamProgress("notes/0", self.committed - 1, lag)]

    def is_drained(self) -> bool:
        return self._next == len(self.messages)

    def close(self) -> None:
        self.closed += 1


class Killed(BaseException):
    """The process ends here."""


def _follower(world: World, source: ListSource, **given: Any) -> Follower:
    mapping = given.pop("mapping", BY_FIELD)
    return Follower(world.ev, source.open, mapping, NAME, **given)


def _at(point: str, do: Callable[[], object]) -> Callable[[str], object]:
    return lambda what: do() if what == point else None


def _note(id: int, rev: int, text: str) -> dict[str, Any]:
    return {"id": id, "rev": rev, "text": text}


@pytest.mark.parametrize("batch", [2, 100])
def test_the_last_word_of_a_stream_is_in_the_index(world: World, batch: int) -> None:
    source = ListSource(
        [
            _note(1, 2, "new"), _note(1, 1, "old"), _note(2, 1, "gone"),
            {"id": 2, "rev": 3, "op": "delete"}, _note(2, 2, "late"), _note(3, 1, "three"),
            _note(1, 2, "new"), {"id": 5, "rev": 5, "op": "d"}, {"id": 5, "rev": 3, "op": "d"},
            {"id": 4, "rev": 2, "op": "delete"}, _note(4, 1, "overtaken"),
            _note(5, 4, "before its second delete"),
        ]
    )  # fmt: skip
    for _ in range(2):
        source.committed = 0  # all of it, and again
        _follower(world, source, batch=batch).run(drain=True)
        assert source.committed == len(source.messages)
    work(world.ev)
    assert_in_step(world.ev, {"1": "new", "3": "three"})


def test_what_a_follower_did_is_counted(memory: World) -> None:
    source = ListSource([_note(1, 1, "a"), _note(2, 1, "b"), _note(1, 1, "a"),
                         {"id": 2, "rev": 2, "op": "d"}, b"{"])  # fmt: skip
    done = _follower(memory, source).run(drain=True)
    assert (done.messages, done.saved, done.deleted, done.stale, done.failed) == (5, 2, 1, 1, 1)


@pytest.mark.parametrize("point", ["fetch", "commit"])
def test_a_killed_follower_repeats_and_loses_nothing(memory: World, point: str) -> None:
    source = ListSource([_note(n % 4, n, f"text {n}") for n in range(9)] + [b"{", b"["])
    kills = 0

    def kill(what: str) -> None:
        nonlocal kills
        if what == point and kills < 8:
            kills += 1
            raise Killed

    source.before = kill
    for _ in range(9):
        try:
            _follower(memory, source, batch=3).run(drain=True)
        except Killed:
            continue
    assert kills == 8
    assert source.committed == len(source.messages)
    work(memory.ev)
    assert_in_step(memory.ev, {"0": "text 8", "1": "text 5", "2": "text 6", "3": "text 7"})
    kept = memory.ev.streams.failed()
    assert [message.position for message in kept] == [9, 10], "each is kept once"


def test_a_store_that_is_away_is_waited_for(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ListSource([_note(n, 1, f"text {n}") for n in range(5)])
    changes, failures = memory.ev.store.changes, list[int]()
    save = changes.save

    def fail(*given: Any) -> Any:
        if len(failures) < 3:
            assert source.committed == 0
            failures.append(1)
            raise StoreError("disk full")
        return save(*given)

    monkeypatch.setattr(changes, "save", fail)
    follower = _follower(memory, source)
    monkeypatch.setattr(follower, "_pause", lambda failures: 0.001)
    follower.run(drain=True)
    assert len(failures) == 3
    assert source.held >= 3, "the stream does not take it for dead"
    assert (source.committed, memory.ev.count()) == (5, 5)


def test_a_follower_that_is_stopped_while_the_store_is_away_commits_nothing(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ListSource([_note(1, 1, "text")])
    follower = _follower(memory, source)

    def fail(*given: Any) -> Any:
        threading.Timer(0, follower.stop).start()
        raise StoreError("the store is away")

    monkeypatch.setattr(memory.ev.store.changes, "save", fail)
    follower.run()
    assert (source.committed, source.closed) == (0, 1)


def test_a_full_quota_stops_the_stream_until_there_is_room(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ListSource([_note(n, 1, f"text {n}") for n in range(5)])
    memory.ev.set_limits(Limits(records=3))
    source.before = _at("hold", lambda: memory.ev.set_limits(Limits(records=9)))
    follower = _follower(memory, source)
    monkeypatch.setattr(follower, "_pause", lambda failures: 0.001)
    done = follower.run(drain=True)
    assert (done.failed, source.committed, memory.ev.count()) == (0, 5, 5)


@pytest.mark.parametrize("point", ["open", "fetch"])
def test_a_stream_that_is_away_is_waited_for(
    memory: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    source = ListSource([_note(1, 1, "text")])
    failures: list[int] = []

    def fail(what: str) -> None:
        if what == point and len(failures) < 3:
            failures.append(1)
            raise SourceUnavailable

    source.before = fail
    follower = _follower(memory, source)
    monkeypatch.setattr(follower, "_pause", lambda failures: 0.001)
    assert follower.run(drain=True).saved == 1


def test_stop_ends_a_follower_after_what_it_fetched(memory: World) -> None:
    source = ListSource([_note(n, 1, f"text {n}") for n in range(10)])
    follower = _follower(memory, source, batch=4)
    source.before = _at("commit", follower.stop)
    follower.run()
    assert (source.committed, memory.ev.count(), source.closed) == (4, 4, 1)


HOSTILE: list[Any] = [
    b"", b"\0", b"{", b"[" * 100_000, b'{"id": 1', b"null", b"5", b'"text"', b"[]", b"{}",
    b'{"id": 1e999, "rev": 1}', b'{"id": "\\ud800", "rev": 1, "text": "x"}',
    {"id": 1, "rev": 1}, {"id": 1, "rev": 1, "text": ""}, {"id": 1, "rev": 1, "text": "a\0b"},
    {"id": 1, "rev": 1, "text": {"a": 1}}, {"id": "", "rev": 1, "text": "x"},
    {"id": 1, "rev": 1, "text": "x", "weight": 7}, {"id": 1, "rev": 1, "text": "x", "boxed": 1, "vectors": 5},
    {"id": 1, "rev": True, "text": "x"}, {"id": 1, "rev": 1, "text": "x", "metadata": {"a": [[]] * 99999}},
    {"id": 1, "rev": 1, "text": "x", "title": "t" * 1_500_000}, {"id": 1, "rev": 1, "text": "x", "created_at": "x"},
]  # fmt: skip


def test_a_poison_message_is_set_aside_and_stops_nothing(world: World) -> None:
    values = [value for bad in HOSTILE for value in (bad, _note(2, 1, "good"))]
    source = ListSource([*values, _note(3, 1, "last")])
    done = _follower(world, source, batch=10).run(drain=True)
    assert source.committed == len(source.messages)
    kept = world.ev.streams.failed()
    assert [message.position for message in kept] == list(range(0, 2 * len(HOSTILE), 2))
    assert done.failed == len(HOSTILE)
    assert all(message.reason and message.part == "notes/0" for message in kept)
    assert all(len(message.content or b"") <= 1 << 20 for message in kept)
    work(world.ev)
    assert_in_step(world.ev, {"2": "good", "3": "last"})
    assert world.ev.store.streams.states(None)[0].failed == len(HOSTILE)
    assert b'evervec_stream_failed{stream="list:notes",tenant="default"} 23.0' in exposition(
        stream_metrics(world.ev.store)
    )
    world.ev._housekeeping.alert()
    assert [alert.name for alert in world.ev.alerts()] == ["streams"]


def test_failed_messages_are_tried_again_as_the_stream_is_followed_now(memory: World) -> None:
    ev, streams = memory.ev, memory.ev.store.streams
    values = [{"id": n, "rev": 1, "body": f"text {n}"} for n in range(3)]
    source = ListSource([*values, b"{", {"id": 9, "rev": 1, "body": "x" * (2 << 20)}])
    _follower(memory, source).run(drain=True)
    assert streams.states("default")[0].failed == 5
    assert (retry(ev, NAME).retried, retry(ev, NAME).failed) == (0, 5)
    right = MessageMapping.of(KIND, version="rev", op="op", text="body")
    source.messages.append(Message("notes/0", 5, None, b'{"id": 1, "rev": 2, "body": "newer"}'))
    _follower(memory, source, mapping=right).run(drain=True)
    done = retry(ev, NAME)
    assert (done.retried, done.failed) == (3, 2)
    assert (ev.count(), ev.get(KIND, "1").text) == (3, "newer")  # type: ignore[union-attr]
    reasons = [message.reason for message in streams.failed("default")]
    assert "not JSON" in reasons[0]
    assert reasons[1].count("only its beginning is kept") == 1
    with pytest.raises(InvalidArgument, match="followed are: list:notes"):
        retry(ev, "another")


def test_too_many_failures_stop_a_follower_before_it_commits(memory: World) -> None:
    source = ListSource([b"{"] * 7)
    with pytest.raises(EvervecError, match="no more than 5 may be"):
        _follower(memory, source, batch=3, most_failed=5).run(drain=True)
    assert source.committed == 3
    assert memory.ev.store.streams.count_failed("default", NAME, 100) == 3
    assert source.closed == 1


def test_a_stream_keeps_its_kind_and_the_rule_of_its_versions(memory: World) -> None:
    source = ListSource([])
    _follower(memory, source).run(drain=True)
    for other, why in (
        (MessageMapping.of("other", version="rev", op="op"), "as kind 'note'"),
        (MessageMapping.of(KIND, version="offset", op="op"), "cannot be compared"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            _follower(memory, source, mapping=other).run(drain=True)
    _follower(memory, source, mapping=MessageMapping.of(KIND, version="rev")).run(drain=True)


def test_the_lag_of_a_stream_is_a_metric(memory: World) -> None:
    source = ListSource([_note(n, 1, "text") for n in range(10)])
    follower = _follower(memory, source, batch=4)
    source.before = _at("commit", follower.stop)
    follower.run()
    shown = exposition(stream_metrics(memory.ev.store)).decode()
    where = '{stream="list:notes",tenant="default"}'
    assert f"evervec_stream_lag{where} 6.0" in shown
    assert f"evervec_stream_seen_timestamp_seconds{where}" in shown


# what operators see of a follower that waits
def _told(world: World) -> tuple[int, list[str]]:
    """The lag, and the raised alerts after housekeeping and a minute's patience."""
    for _ in range(2):
        world.ev._housekeeping.alert()
        world.clock.move(61)
    world.ev._housekeeping.alert()
    (state,) = world.ev.streams.states()
    return state.lag, [
        alert.text for alert in world.ev.alerts() if alert.name.startswith("streams")
    ]


def test_a_stream_that_waits_for_room_tells_its_lag_and_raises_an_alert(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ListSource([_note(n, 1, f"text {n}") for n in range(5)])
    world.ev.set_limits(Limits(records=3))
    follower, seen = _follower(world, source), list[tuple[int, list[str]]]()

    def make_room(what: str) -> None:
        if what != "hold":
            return
        if source.held == 3:
            seen.append(_told(world))
            world.ev.set_limits(Limits(records=9))
        follower._report_at = 0.0  # the next second

    source.before = make_room
    monkeypatch.setattr(follower, "_pause", lambda failures: 0.001)
    follower.run(drain=True)
    ((lag, alerts),) = seen
    assert lag == 5, "none is committed"
    assert len(alerts) == 1
    assert alerts[0].startswith("the stream list:notes of default waits: ")
    assert "records" in alerts[0], "it says which quota"
    assert _told(world) == (0, [])


def test_a_source_that_knows_no_progress_yet_is_asked_again_soon(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ListSource([_note(1, 1, "text")])
    follower = _follower(memory, source)
    monkeypatch.setattr(source, "progress", list)
    monkeypatch.setattr("time.monotonic", lambda: 1000.0)
    assert not follower._report(source)
    follower._report_soon(source, 10.0)
    assert follower._report_at == 1001.0
    monkeypatch.setattr(source, "progress", lambda: [StreamProgress("notes/0", 1, 0)])
    follower._report_at = 0.0
    follower._report_soon(source, 10.0)
    assert follower._report_at == 1010.0


def test_a_stream_that_nobody_follows_raises_an_alert_unless_it_was_drained(world: World) -> None:
    source = ListSource([_note(n, 1, f"text {n}") for n in range(3)])
    follower = _follower(world, source)
    source.before = _at("commit", follower.stop)
    follower.run()
    world.clock.move(301)
    assert _told(world)[1] == [
        "nobody follows the stream list:notes of default: start `evervec follow`"
    ]
    source.before = lambda what: None
    _follower(world, source).run(drain=True)
    world.clock.move(10_000)
    assert _told(world)[1] == []


def test_a_stream_that_cannot_be_opened_raises_an_alert(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, told = ListSource([]), list[list[str]]()
    follower = _follower(memory, source)

    def fail(what: str) -> None:
        if what == "open" and len(told) < 2:
            told.append(_told(memory)[1])
            raise SourceUnavailable("no broker answers")

    source.before = fail
    monkeypatch.setattr(follower, "_pause", lambda failures: 0.001)
    follower.run(drain=True)
    assert told[1] == [
        "the stream list:notes of default waits: the stream is unavailable: no broker answers"
    ]
    assert _told(memory)[1] == []


# a stream that was deleted and created again
BY_PLACE = MessageMapping.of(KIND)


def _text(id: int, text: str) -> dict[str, Any]:
    return {"id": id, "text": text}


@pytest.mark.parametrize("sign", ["identity", "end", "went back"])
def test_a_stream_that_was_created_again_is_refused_until_it_is_forgotten(
    world: World, sign: str
) -> None:
    old = [_text(n, f"old {n}") for n in range(5)]
    _follower(world, ListSource([*old, b"{"]), mapping=BY_PLACE).run(drain=True)
    world.ev.delete(KIND, "4")
    again = ListSource([_text(n, f"new {n}") for n in range(3)])
    if sign != "end":
        again.messages += ListSource([_text(0, "new 0")] * 9).messages[3:]
    again.created = "later" if sign == "identity" else "once"
    again.went_back = sign == "went back"
    for _ in range(2):
        with pytest.raises(InvalidArgument, match=r"created again, or restored.*--forget"):
            _follower(world, again, mapping=BY_PLACE).run(drain=True)
    assert again.committed == 0
    assert (again.closed, world.ev.count()) == (2, 4)
    again.went_back = False
    assert world.ev.streams.forget(NAME)
    done = _follower(world, again, mapping=BY_PLACE).run(drain=True)
    assert (done.saved, done.stale) == (len(again.messages), 0)
    work(world.ev)
    assert_in_step(world.ev, {"0": "new 0", "1": "new 1", "2": "new 2", "3": "old 3"})
    again.messages.append(Message("notes/0", 99, b"4", b'{"text": "back"}'))
    _follower(world, again, mapping=BY_PLACE).run(drain=True)
    assert world.ev.get(KIND, "4").text == "back"  # type: ignore[union-attr]


def test_a_stream_that_was_created_again_goes_on_if_its_versions_do(memory: World) -> None:
    _follower(memory, ListSource([_note(n, 1, "old") for n in range(5)])).run(drain=True)
    again = ListSource([_note(1, 2, "new"), _note(2, 1, "old")])
    again.created, again.went_back = "later", True
    done = _follower(memory, again).run(drain=True)
    assert (done.saved, done.stale) == (1, 1)


def test_a_stream_is_followed_from_the_beginning_by_another_group(memory: World) -> None:
    source = ListSource([_text(n, f"text {n}") for n in range(5)])
    _follower(memory, source, mapping=BY_PLACE).run(drain=True)
    source.committed = 0
    assert _follower(memory, source, mapping=BY_PLACE).run(drain=True).stale == 5


def test_a_message_that_is_set_aside_again_is_kept_as_it_is_now(memory: World) -> None:
    _follower(memory, ListSource([b"{old"])).run(drain=True)
    _follower(memory, ListSource([b"{new"])).run(drain=True)
    (kept,) = memory.ev.streams.failed(NAME)
    assert kept.content == b"{new"


def test_a_kind_that_follows_a_table_is_refused(file_world: World) -> None:
    with file_world.connect() as conn:
        conn.execute("create table articles (id integer primary key, body text)")
    file_world.ev.attach("articles", kind=KIND, text="body")
    with pytest.raises(InvalidArgument, match="rows of articles"):
        _follower(file_world, ListSource([])).run(drain=True)
