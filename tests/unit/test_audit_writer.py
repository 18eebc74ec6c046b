"""No client makes the audit log grow without bound, and none hides what it did."""

import asyncio
from collections.abc import Iterator

import pytest

from evervec import Evervec
from evervec.errors import StoreError
from evervec.model.access import AuditEntry
from evervec.server import audit_writer as module
from evervec.server.audit import Audit
from evervec.server.audit_writer import AuditWriter, Repeats
from evervec.stores.service_values import AuditChoice, StoredEntry
from evervec.telemetry.counters import AUDIT
from support.world import START, Clock


def entry(at: float = START, action: str = "queue.pause", target: str = "") -> StoredEntry:
    return StoredEntry(
        at, "key", "agent", "acme", action, target, "done", f"at {at:g}", "192.0.2.1"
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ev(clock: Clock) -> Iterator[Evervec]:
    import evervec

    with evervec.open("memory:", embedder="hashing", clock=clock, keep_audit_entries=10) as ev:
        yield ev


@pytest.fixture
def writer(ev: Evervec) -> Iterator[AuditWriter]:
    writer = AuditWriter(ev.store, ev.settings)
    yield writer
    writer.close()


def listed(ev: Evervec) -> list[AuditEntry]:
    return Audit(ev.store).list(AuditChoice(), 10_000)[::-1]


def note(writer: AuditWriter, *entries: StoredEntry, changed: bool = True) -> None:
    async def main() -> None:
        for one in entries:
            await writer.note(one, changed=changed)

    asyncio.run(main())


# ---- what repeats


def test_a_few_are_written_and_the_rest_is_one_entry() -> None:
    repeats = Repeats()
    written = [repeats.take(entry(START + n / 100), True) for n in range(1000)]
    assert sum(map(len, written)) == 5
    assert repeats.end(START + 59) == []
    (rest,) = repeats.end(START + 60)
    assert rest.outcome == "done: the last of 995 in 10 s"
    assert (rest.at, rest.request_id) == (START + 9.99, f"at {START + 9.99:g}")
    assert repeats.end(None) == []


def test_one_repetition_is_written_as_it_was() -> None:
    repeats = Repeats()
    for n in range(6):
        repeats.take(entry(START + n), True)
    assert repeats.end(None) == [entry(START + 5)]


def test_nothing_that_differs_is_counted_together() -> None:
    repeats = Repeats()
    entries = [entry(target=str(n)) for n in range(100)]
    entries += [entry(action=f"job.{n}") for n in range(100)]
    assert [repeats.take(one, True) for one in entries] == [[one] for one in entries]


def test_what_changed_nothing_is_counted_whatever_its_target() -> None:
    repeats = Repeats()
    written = [repeats.take(entry(target=f"older than {n} s"), False) for n in range(100)]
    assert sum(map(len, written)) == 5
    (rest,) = repeats.end(None)
    assert rest.target == "older than 99 s"
    assert rest.outcome.startswith("done: the last of 95 in")


def test_a_new_minute_begins_with_what_the_last_one_counted() -> None:
    repeats = Repeats()
    for _ in range(8):
        repeats.take(entry(), True)
    later = entry(START + 61)
    first, second = repeats.take(later, True)
    assert first.outcome == "done: the last of 3 in 1 s"
    assert second == later
    assert repeats.take(later, True) == [later]


def test_a_clock_that_is_set_back_begins_a_new_minute() -> None:
    repeats = Repeats()
    for _ in range(6):
        repeats.take(entry(), True)
    assert len(repeats.take(entry(START - 1000), True)) == 2


def test_beyond_what_is_told_apart_everything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_KNOWN", 10)
    repeats = Repeats()
    written = [repeats.take(entry(target=str(n % 20)), True) for n in range(400)]
    assert sum(map(len, written)) == 10 * 5 + 10 * 20
    assert len(repeats._known) == 10


# ---- what is kept


def test_the_latest_entries_of_an_action_are_kept_while_it_floods_the_log(
    ev: Evervec, writer: AuditWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TRIM_EVERY", 20)
    before = AUDIT.sums()
    note(writer, entry(action="key.revoke"), *(entry(target=str(n)) for n in range(205)))
    entries = listed(ev)
    assert entries[0].action == "key.revoke"
    assert len(entries) - 1 <= 10 + 20
    assert [e.target for e in entries[-10:]] == [str(n) for n in range(195, 205)]
    after = AUDIT.sums()
    assert after["written",] - before.get(("written",), 0) == 206
    assert after["removed",] - before.get(("removed",), 0) == 206 - len(entries)


def test_a_sweep_trims_what_other_processes_wrote(ev: Evervec, writer: AuditWriter) -> None:
    for n in range(30):
        Audit(ev.store).note("cli", "acme", "job.retry", str(n))
    writer.trim()
    assert [e.target for e in listed(ev)] == [str(n) for n in range(20, 30)]


def test_what_was_counted_is_written_at_the_end_and_after_an_error(
    ev: Evervec, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = AuditWriter(ev.store, ev.settings)
    note(writer, *[entry()] * 9)
    clock.move(60)
    writer.end_repeats(clock.now)

    def away(_: object) -> None:
        raise StoreError("away")

    with monkeypatch.context() as broken:
        broken.setattr(ev.store.service, "add_audit", away)
        with pytest.raises(StoreError):
            writer.write_counted()
    note(writer, *[entry(START + 60)] * 7)
    writer.close()
    assert [e.outcome for e in listed(ev)] == [
        *["done"] * 10,
        "done: the last of 4 in 1 s",
        "done: the last of 2 in 1 s",
    ]
