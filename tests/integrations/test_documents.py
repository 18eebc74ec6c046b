"""What the stores of all frameworks share: changes, and searches that wait for them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import evervec
from evervec import Evervec, JobFailed, WaitTimeout
from evervec.integrations.documents import Documents
from evervec.model.jobs import Job, Ticket
from support.world import fail_for_good


@pytest.fixture
def ev() -> Iterator[Evervec]:
    with evervec.open("memory:", embedder="hashing") as opened:
        yield opened


def found(documents: Documents) -> list[str]:
    return [hit.id for hit in documents.run(documents.search("tea", 10, mode="text"))]


def test_a_search_waits_for_the_changes_made_here_and_no_others(ev: Evervec) -> None:
    mine, other = (Documents(ev, "note", embed=False, wait=0.05) for _ in range(2))
    mine.run(mine.add([{"id": "1", "text": "tea"}]))
    with pytest.raises(WaitTimeout):
        found(mine)
    assert found(other) == ["1"]
    ev.process_all()
    assert found(mine) == ["1"]


def test_a_failed_change_is_reported_once(ev: Evervec) -> None:
    documents = Documents(ev, "note", embed=False)
    documents.run(documents.add([{"id": "bad", "text": "bad tea"}]))
    fail_for_good(ev, "bad")
    with pytest.raises(JobFailed):
        found(documents)
    assert found(documents) == ["bad"]


def test_of_very_many_changes_only_those_that_are_not_embedded_are_waited_for(
    ev: Evervec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call for each would be a request to the service for each."""
    waited, wait = [], ev.wait

    def counted(ticket: Ticket, timeout: float | None = None) -> Job:
        waited.append(ticket.id)
        return wait(ticket, timeout)

    monkeypatch.setattr(ev, "wait", counted)
    documents = Documents(ev, "note", embed=False, wait=0.05)
    records = [{"id": str(n), "text": f"tea {n}", "metadata": {"n": n}} for n in range(1500)]
    documents.run(documents.add(records))
    with pytest.raises(WaitTimeout):
        found(documents)
    ev.process_all()
    documents.run(documents.add([{**records[7], "metadata": {"n": -1}}, records[8]]))
    documents.run(documents.add([{"id": "bad", "text": "bad tea"}]))
    fail_for_good(ev, "bad")
    waited.clear()
    with pytest.raises(WaitTimeout):
        found(documents)
    assert waited == ["7"], "its metadata is not in the index yet"
    ev.process_all()
    with pytest.raises(JobFailed):
        found(documents)
    assert len(found(documents)) == 10
    assert waited == ["7", "7", "bad"]


def test_changes_in_the_index_are_forgotten_though_nobody_searches(
    ev: Evervec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evervec.integrations.documents._MANY", 10)
    documents = Documents(ev, "note")
    for n in range(30):
        documents.run(documents.add([{"id": str(n), "text": f"tea {n}"}]))
        assert len(documents._waiting) <= 10


def test_a_search_that_was_cancelled_leaves_its_wait_to_the_next(tmp_path: Path) -> None:
    async def main() -> None:
        async with evervec.aopen(tmp_path / "notes.db", embedder="hashing") as ev:
            documents = Documents(ev, "note", embed=False)
            await documents.arun(documents.add([{"id": "1", "text": "tea"}]))
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(documents.arun(documents.search("tea", 1)), 0.05)
            await ev.process_all()
            (hit,) = await documents.arun(documents.search("tea", 1))
            assert hit.similarity is not None

    asyncio.run(main())


def test_a_search_after_a_delete_by_filter_waits_for_nothing(ev: Evervec) -> None:
    documents = Documents(ev, "note", wait=0.0)
    documents.run(documents.add({"id": n, "text": f"tea {n}"} for n in range(5)))
    assert documents.run(documents.delete_where({"n": None})) == 5
    assert found(documents) == []
    assert ev.verify().complete


def test_clearing_leaves_other_kinds(ev: Evervec) -> None:
    documents = Documents(ev, "note")
    texts = ({"id": n, "text": f"tea {n}", "metadata": {"any": n}} for n in range(1200))
    documents.run(documents.add(texts))
    ev.add("page", "tea")
    assert documents.run(documents.clear()) == 1200
    assert (ev.count("note"), ev.count("page")) == (0, 1)


def test_an_error_reaches_the_plan_and_then_the_caller(ev: Evervec) -> None:
    documents = Documents(ev, "note")
    with pytest.raises(evervec.InvalidRecord, match="text: is empty"):
        documents.run(documents.add([{"id": "1", "text": "tea"}, {"id": "2", "text": ""}]))
    assert [record.id for record in documents.run(documents.all())] == ["1"]
