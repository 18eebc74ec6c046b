"""Saving drafts of which some are refused."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evervec import InvalidArgument, InvalidRecord, Limits, QuotaExceeded, Ticket
from evervec.errors import StoreError, ValueRefused
from evervec.records.drafts import make_draft
from evervec.records.writer import Save, save_each, save_together
from evervec.stores.values import Draft
from support.world import KIND, World, add_all


def drafts(*ids: str) -> list[Draft]:
    return [make_draft(f"text {id}", {"id": id}, None) for id in ids]


def test_what_has_no_room_takes_few_transactions_wherever_it_stands(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, known = memory.ev.store, [str(n) for n in range(20)]
    add_all(memory.ev, KIND, *known)
    memory.ev.set_limits(Limits(records=20))
    asked: list[int] = []
    save = store.changes.save

    def counted(tenant: str, kind: str, given: Sequence[Draft], conn: Any = None) -> list[Ticket]:
        asked.append(len(given))
        return save(tenant, kind, given, conn)

    monkeypatch.setattr(store.changes, "save", counted)
    mixed = [id for n in known for id in (n, f"new {n}")]
    found = list(save_each(store.changes, memory.ev.tenant, KIND, drafts(*mixed)))
    assert [isinstance(each, QuotaExceeded) for each in found] == [False, True] * 20
    assert asked == [40, 1, 19]


def test_what_is_behind_one_without_room_is_not_saved_unless_asked_for(memory: World) -> None:
    memory.ev.set_limits(Limits(records=1))
    given = [*drafts("a", "b"), make_draft("new", {"id": "a"}, None)]
    saved = save_each(memory.ev.store.changes, memory.ev.tenant, KIND, given)
    assert isinstance(next(saved), Ticket)
    assert isinstance(next(saved), QuotaExceeded)
    before = memory.ev.store.mark()
    assert isinstance(next(saved), Ticket)
    assert memory.ev.store.mark() > before


def test_a_value_that_the_store_refuses_is_told_with_its_reason(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = memory.ev.store.changes.save

    def picky(tenant: str, kind: str, given: Sequence[Draft], conn: Any = None) -> list[Ticket]:
        if any(draft.id == "b" for draft in given):
            raise TypeError("no such number")
        return save(tenant, kind, given, conn)

    monkeypatch.setattr(memory.ev.store.changes, "save", picky)
    found = list(save_each(memory.ev.store.changes, memory.ev.tenant, KIND, drafts(*"abc")))
    assert [type(each) for each in found] == [Ticket, ValueRefused, Ticket]
    assert str(found[1]).endswith("it was not saved: no such number")
    with pytest.raises(InvalidRecord, match="no such number") as refused:
        list(memory.ev.add_many(KIND, [{"id": id, "text": "x"} for id in "ab"]))
    assert refused.value.position == 1
    assert type(refused.value) is InvalidRecord


def test_a_value_that_the_store_refuses_is_told_with_its_place_among_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(("memory", "sqlite"), tmp_path, add_batch=2)
    save = world.ev.store.changes.save

    def picky(tenant: str, kind: str, given: Sequence[Draft], conn: Any = None) -> list[Ticket]:
        if any(draft.id == "d" for draft in given):
            raise TypeError("no such number")
        return save(tenant, kind, given, conn)

    monkeypatch.setattr(world.ev.store.changes, "save", picky)
    with pytest.raises(InvalidRecord) as refused:
        list(world.ev.add_many(KIND, [{"id": id, "text": "x"} for id in "abcde"]))
    assert refused.value.position == 3
    world.close()


def test_every_write_asks_whether_its_kind_may_be_written(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(memory.ev.attachments, "check_writable", asked.append)
    memory.ev.add("page", "alpha", id="1")
    list(memory.ev.add_many("task", ["beta"]))
    memory.ev.delete_where({"a": {"exists": False}}, kind="page")
    assert asked == ["page", "task", "page"]


def test_what_the_store_itself_refuses_is_told_in_its_own_words(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> list[Ticket]:
        raise ValueRefused("too large for a column")

    monkeypatch.setattr(memory.ev.store.changes, "save", refuse)
    (found,) = save_each(memory.ev.store.changes, memory.ev.tenant, KIND, drafts("a"))
    assert str(found) == "too large for a column"


def test_a_write_goes_through_the_callers_own_connection(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, used = memory.ev.store.changes.save, []

    def watched(tenant: str, kind: str, given: Sequence[Draft], conn: Any = None) -> list[Ticket]:
        used.append((tenant, kind, conn))
        return save(tenant, kind, given)

    monkeypatch.setattr(memory.ev.store.changes, "save", watched)
    memory.ev.add(KIND, "alpha", id="1", conn="mine")
    list(memory.ev.add_many(KIND, ["beta"], conn="mine"))
    assert used == [("default", KIND, "mine")] * 2


def test_records_of_a_tenant_and_kind_are_saved_together_and_those_with_a_condition_alone(
    memory: World,
) -> None:
    asked = [
        Save("a", "n", drafts("0")[0]),
        Save("a", "n", replace(drafts("1")[0], if_seq=3)),
        Save("b", "n", drafts("2")[0]),
        Save("a", "n", drafts("3")[0]),
        Save("a", "n", replace(drafts("4")[0], if_seq=3)),
        Save("a", "away", drafts("5")[0]),
        Save("a", "away", drafts("6")[0]),
        Save("a", "short", drafts("7")[0]),
        Save("a", "short", drafts("8")[0]),
    ]
    calls: list[tuple[str, str, list[str]]] = []

    def save(tenant: str, kind: str, given: Sequence[Draft], conn: Any) -> Iterator[Any]:
        ids = [draft.id for draft in given]
        calls.append((tenant, kind, ids))
        for id in ids[: 1 if kind == "short" else 9]:
            if id == "6":
                raise QuotaExceeded("full")
            yield f"ticket {id}"

    answers: list[Any] = save_together(asked, memory.ev.store.changes, save)
    assert calls == [
        ("a", "n", ["0", "3"]), ("a", "n", ["1"]), ("b", "n", ["2"]), ("a", "n", ["4"]),
        ("a", "away", ["5", "6"]), ("a", "short", ["7", "8"]),
    ]  # fmt: skip
    assert answers[:6] == [f"ticket {n}" for n in range(6)]
    assert isinstance(answers[6], QuotaExceeded)
    assert answers[7] == "ticket 7"
    assert isinstance(answers[8], ValueError), "an answer that is missing is not made up"


def test_a_bad_kind_is_named_when_something_is_deleted(memory: World) -> None:
    for delete in (
        lambda: memory.ev.delete("", "1"),
        lambda: memory.ev.delete_where({"a": 1}, kind=""),
    ):
        with pytest.raises((InvalidRecord, InvalidArgument), match=r"^kind: "):
            delete()


def test_a_record_that_changed_since_it_was_read_is_not_deleted(memory: World) -> None:
    ticket = memory.ev.add(KIND, "alpha", id="1")
    assert not memory.ev.delete(KIND, "1", if_seq=ticket.seq + 1).accepted
    assert memory.ev.get(KIND, "1") is not None
    memory.ev.delete(KIND, "1", if_seq=ticket.seq)
    assert memory.ev.get(KIND, "1") is None


def _commits(world: World) -> list[str]:
    """The transactions of its writer that begin or end from now on."""
    said: list[str] = []

    def note(statement: str) -> None:
        if statement.lower().startswith(("begin", "commit", "rollback")):
            said.append(statement.split(maxsplit=1)[0].lower())

    world.ev.store.db._writer.set_trace_callback(note)  # type: ignore[attr-defined]
    return said


def test_records_of_many_tenants_are_saved_in_one_transaction(memory: World) -> None:
    changes = memory.ev.store.changes
    said = _commits(memory)
    answers = save_together(
        [Save(tenant, kind, drafts("1")[0]) for tenant in "ab" for kind in "mn"],
        changes,
        partial(save_each, changes),
    )
    assert all(isinstance(answer, Ticket) for answer in answers)
    assert said == ["begin", "commit"]
    assert all(memory.ev.of(tenant).get(kind, "1") for tenant in "ab" for kind in "mn")


def test_what_one_tenant_may_not_save_does_not_hinder_the_others(memory: World) -> None:
    changes = memory.ev.store.changes
    memory.ev.of("b").set_limits(Limits(records=1))
    asked = [Save(tenant, KIND, draft) for tenant in "abc" for draft in drafts("1", "2")]
    said = _commits(memory)

    def save(tenant: str, kind: str, given: Sequence[Draft], conn: Any) -> Iterator[Any]:
        if tenant == "c":
            yield from changes.save(tenant, kind, given[:1], conn)
            raise RuntimeError("a bug")
        yield from save_each(changes, tenant, kind, given, conn)

    answers = save_together(asked, changes, save)
    assert [type(answer).__name__ for answer in answers[:6]] == [
        "Ticket", "Ticket", "Ticket", "QuotaExceeded", "Ticket", "RuntimeError",
    ]  # fmt: skip
    assert said.count("commit") == 1
    assert [len(memory.ev.of(tenant).records(KIND)) for tenant in "abc"] == [2, 1, 1]


def test_a_shared_transaction_that_is_lost_is_an_error_for_all_of_it(memory: World) -> None:
    changes = memory.ev.store.changes

    def save(tenant: str, kind: str, given: Sequence[Draft], conn: Any) -> Iterator[Any]:
        if tenant == "b":
            conn.execute("rollback")  # as SQLite does when the disk is full
            raise StoreError("the disk is full")
        yield from save_each(changes, tenant, kind, given, conn)

    asked = [Save(tenant, KIND, drafts("1")[0]) for tenant in "abc"]
    answers = save_together(asked, changes, save)
    assert [str(answer) for answer in answers[:2]] == ["the disk is full"] * 2
    assert "rolled back" in str(answers[2])
    assert not any(memory.ev.of(tenant).records(KIND) for tenant in "abc")
    assert isinstance(save_together(asked[:1], changes, save)[0], Ticket), "the next one is new"
