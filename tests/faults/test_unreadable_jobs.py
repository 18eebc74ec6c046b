"""Jobs that this process does not know how to do, or cannot read."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evervec import Evervec, Kind, Status
from support.fault_checks import assert_true_to, open_store, outcomes, settle
from support.places import Place, connect, query

GOOD = {str(n): f"good note {n} of the pile {n}" for n in range(5)}


ENGINES = ("sqlite", "duckdb")


@pytest.fixture(params=ENGINES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Only a file has these troubles."""
    file = tmp_path / "notes.db"
    return file if request.param == "sqlite" else f"duckdb:///{file}"


def add_good(ev: Evervec) -> None:
    for id, text in GOOD.items():
        ev.add("note", text, id=id)


def on_each(spoiled: Mapping[str, str | bytes]) -> list[Any]:
    """Each engine with all that it can hold: DuckDB takes no text that is not UTF-8."""
    return [
        pytest.param(engine, name, id=f"{engine}-{name}")
        for engine in ENGINES
        for name, value in spoiled.items()
        if engine == "sqlite" or isinstance(value, str)
    ]


def tamper(path: Place, sql: str, *values: object) -> None:
    """What a faulty disk, tool or hand does to the file."""
    conn = connect(path)
    assert conn.execute(sql, values).rowcount == 1
    conn.commit()
    conn.close()


def test_a_row_of_an_unknown_kind_is_kept_and_reported(
    ev: Evervec, path: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can load it: it becomes a dead letter that says what to do, and once that is done
    it is embedded."""
    add_good(ev)
    result = ev.queue.enqueue("note", "from elsewhere")
    with caplog.at_level(logging.ERROR, "evervec"):
        done = ev.process_all()
    assert (done.succeeded, done.failed) == (len(GOOD), 1)
    assert [job_id for job_id, _ in done.errors] == [result.job_id]
    assert "Embedding failed permanently" in caplog.text
    job = ev.queue.failed()[0]
    assert (job.job_id, job.record_id, job.status) == (
        result.job_id, "from elsewhere", Status.FAILED,
    )  # fmt: skip
    assert "register" in (job.error or "")
    assert outcomes(ev, "from elsewhere") == ["failed"]

    ev.register(Kind("note", load=lambda id: f"the row {id}"))
    ev.queue.retry(job.job_id)
    settle(ev)
    assert_true_to(ev, path, {**GOOD, "from elsewhere": "the row from elsewhere"})


def test_jobs_of_a_kind_that_only_another_process_knows_wait_for_it(
    ev: Evervec, path: Place
) -> None:
    """A worker without the kind's code leaves them alone, spends no attempt, and does the rest."""
    with open_store(path) as other:
        other.register(Kind("row", load=lambda id: f"the row {id}"))
        other.queue.enqueue("row", "a")
        other.pipeline.served.refresh()  # as its worker does before it claims
        add_good(ev)
        assert ev.process_all().succeeded == len(GOOD)
        job = ev.queue.status("row", "a")
        assert job is not None
        assert (job.status, job.attempts) == (Status.PENDING, 0)
        assert ev.queue.stats().pending == 1
        assert other.process_all().succeeded == 1
    assert_true_to(ev, path, {**GOOD, "a": "the row a"})


BOXES: dict[str, str | bytes] = {
    "not JSON": "{",
    "empty": "",
    "not an object": "[1, 2]",
    "without a text": '{"metadata": "{}", "data": null}',
    "with a text of a wrong type": '{"text": 5, "metadata": "{}", "data": null}',
    "with broken metadata": '{"text": "x", "metadata": "{", "data": null}',
    "too deep to read": '{"text": "x", "data": null, "metadata": ' + "[" * 200_000,
    "not UTF-8": b'{"text": "\xff\xfe"}',
}


@pytest.mark.parametrize(("path", "what"), on_each(BOXES), indirect=["path"])
def test_a_box_that_cannot_be_read_is_kept_and_reported(
    ev: Evervec, path: Place, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """It fails alone and for good, and the box stays as it is for whoever can mend it."""
    box = BOXES[what]
    ticket = ev.add("note", "a boxed note", id="a", boxed=True, priority=1)
    add_good(ev)
    tamper(
        path, "update evervec_jobs set box = cast(? as text) where job_id = ?", box, ticket.job_id
    )
    with caplog.at_level(logging.ERROR, "evervec"):
        done = ev.process_all()
    assert (done.succeeded, done.failed) == (len(GOOD), 1)
    assert [job_id for job_id, _ in done.errors] == [ticket.job_id]
    assert "Embedding failed permanently" in caplog.text
    job = ev.queue.get(ticket.job_id)
    assert job is not None
    assert (job.status, bool(job.error)) == (Status.FAILED, True)
    kept = query(path, "select cast(box as blob) from evervec_jobs where box is not null")
    assert kept == [(box if isinstance(box, bytes) else box.encode(),)]

    ev.add("note", "a note once more", id="a")
    settle(ev)
    assert_true_to(ev, path, {**GOOD, "a": "a note once more"})


SPOILED: dict[str, str | bytes] = {
    "metadata": "{not json",
    "text": b"\xff\xfe not utf-8",
    "title": b"\xff\xfe not utf-8",
}


@pytest.mark.parametrize(("path", "column"), on_each(SPOILED), indirect=["path"])
def test_a_record_that_cannot_be_read_does_not_hold_up_the_others(
    ev: Evervec, path: Place, caplog: pytest.LogCaptureFixture, column: str
) -> None:
    """One spoiled row fails alone, is reported, and its job stays until it is mended."""
    ticket = ev.add("note", "a note", id="a", priority=1)
    add_good(ev)
    tamper(
        path,
        f"update evervec_records set {column} = cast(? as text) where id = 'a'",
        SPOILED[column],
    )
    with caplog.at_level(logging.ERROR, "evervec"):
        done = ev.process_all()
    assert done.succeeded == len(GOOD)
    assert [job_id for job_id, _ in done.errors] == [ticket.job_id]
    job = ev.queue.get(ticket.job_id)
    assert job is not None
    assert job.error
    assert job.status in (Status.FAILED, Status.PENDING)


def test_a_job_to_do_what_nobody_knows_does_not_hold_up_the_others(
    ev: Evervec, path: Place
) -> None:
    """It is not dropped, and not mistaken for another."""
    ticket = ev.add("note", "a note", id="a", priority=1)
    add_good(ev)
    tamper(path, "update evervec_jobs set op = 'summarize' where job_id = ?", ticket.job_id)
    assert ev.process_all().succeeded == len(GOOD)
    rows = query(path, "select op, status from evervec_jobs where job_id = ?", ticket.job_id)
    assert rows in ([("summarize", "pending")], [("summarize", "failed")])
