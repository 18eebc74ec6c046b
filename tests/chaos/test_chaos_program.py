"""The program in a short form, and that it sees what it is there to see."""

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import evervec
from chaos import report
from chaos.journal import Journal, Writes
from chaos.judging import Verdict
from evervec import Evervec, Ticket
from evervec.embedders.hashing import HashingEmbedder
from support.oracle import Key, Oracle, Problem

TESTS = Path(__file__).parents[1]
FAULTS, WRITES = 5, 20
"""what a run must have seen before it is ended, however long that takes on this machine"""
KEY = Key("default", "note", "1")


def test_a_fleet_on_one_file_survives_until_ctrl_c_and_leaves_no_process_behind(
    tmp_path: Path,
) -> None:
    mark = f"chaos-{uuid.uuid4()}"
    path = os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])
    with subprocess.Popen(
        [sys.executable, "-m", "chaos", "--minutes", "10", "--pair", "sqlite", "--records", "8",
         "--tell"],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ, "PYTHONPATH": path, "EVERVEC_TEST_MARK": mark, "TMPDIR": str(tmp_path)
        },
    ) as program:  # fmt: skip
        assert program.stdout is not None
        assert program.stdout.readline().startswith("seed ")
        faults = 0
        while faults < FAULTS or _acknowledged(tmp_path) <= WRITES:
            line = program.stdout.readline()
            assert line, "it ended by itself"
            faults += line.startswith("fault: ")
        program.send_signal(signal.SIGINT)
        said = program.stdout.read()
    assert program.returncode == 0, said
    (row,) = re.findall(r"^\| sqlite .*$", said, re.MULTILINE)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert int(cells[2]) >= FAULTS
    assert int(cells[3]) > WRITES
    assert cells[8:12] == ["0"] * 4, said
    assert cells[-2:] == ["all right", "complete"]
    assert _running(mark) == []


def _acknowledged(folder: Path) -> int:
    """The writes that the authors have noted as acknowledged."""
    journals = folder.glob("evervec-chaos-*/author-*.jsonl")
    return sum(journal.read_bytes().count(b'"ack"') for journal in journals)


def _running(mark: str) -> list[str]:
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in environ.read_bytes():
                found.append(environ.parent.name)
        except OSError:  # it ended meanwhile
            continue
    return found


# what the judge knows: writes with and without an answer


@pytest.fixture
def ev() -> Iterator[Evervec]:
    with evervec.open("memory:", embedder=HashingEmbedder(64)) as opened:
        yield opened


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


def judged(ev: Evervec, folder: Path) -> list[str]:
    """What is wrong, in short."""
    ev.process_all()
    oracle = Oracle()
    Writes.read([folder / "journal"]).tell(oracle, ev)
    return sorted(Verdict(problems=oracle.problems(ev)).counts)


def add(ev: Evervec, journal: Journal, text: str) -> Ticket:
    name = journal.intend(KEY, text)
    ticket = ev.add("note", text, id="1")
    journal.acknowledged(name, ticket)
    return ticket


def test_what_was_acknowledged_is_wanted(ev: Evervec, journal: Journal, tmp_path: Path) -> None:
    add(ev, journal, "first")
    add(ev, journal, "second")
    assert judged(ev, tmp_path) == []


def test_an_acknowledged_record_that_is_not_there_is_lost(
    ev: Evervec, journal: Journal, tmp_path: Path
) -> None:
    journal.acknowledged(journal.intend(KEY, "text"), Ticket("note", "1", 1, 1))
    assert judged(ev, tmp_path) == ["lost"]


def test_a_record_with_an_older_text_is_stale(
    ev: Evervec, journal: Journal, tmp_path: Path
) -> None:
    ticket = add(ev, journal, "first")
    later = Ticket("note", "1", ticket.job_id, ticket.seq)
    journal.acknowledged(journal.intend(KEY, "second"), later)
    assert judged(ev, tmp_path) == ["stale"]


def test_a_deleted_record_that_is_there_was_resurrected(
    ev: Evervec, journal: Journal, tmp_path: Path
) -> None:
    ticket = add(ev, journal, "text")
    later = Ticket("note", "1", ticket.job_id, ticket.seq)
    journal.acknowledged(journal.intend(KEY, None), later)
    assert judged(ev, tmp_path) == ["resurrected"]


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("text", ["second", None])
def test_a_write_without_an_answer_may_have_been_done_or_not(
    ev: Evervec, journal: Journal, tmp_path: Path, text: str | None, done: bool
) -> None:
    add(ev, journal, "first")
    journal.intend(KEY, text)
    if done and text:
        ev.add("note", text, id="1")
    elif done:
        ev.delete("note", "1")
    journal.gone()
    assert judged(ev, tmp_path) == []


def test_a_write_without_an_answer_excuses_nothing_else(
    ev: Evervec, journal: Journal, tmp_path: Path
) -> None:
    add(ev, journal, "first")
    journal.intend(KEY, "second")
    ev.add("note", "third", id="1")
    journal.gone()
    assert judged(ev, tmp_path) == ["stale"]


def test_a_write_that_was_rolled_back_does_not_count(
    ev: Evervec, journal: Journal, tmp_path: Path
) -> None:
    add(ev, journal, "first")
    journal.taken_back(journal.intend(KEY, "second"))
    assert judged(ev, tmp_path) == []
    ev.add("note", "second", id="1")
    assert judged(ev, tmp_path) == ["stale"]


def test_a_record_counts_once_for_the_gravest_of_its_problems() -> None:
    other = Key("default", "note", "2")
    problems = [
        Problem(KEY, "a"), Problem(KEY, "b", "stale"), Problem(KEY, "c", "doubled"),
        Problem(other, "d"), Problem(None, "e", "resurrected"), Problem(None, "f", "resurrected"),
    ]  # fmt: skip
    counts = Verdict(problems=problems).counts
    assert counts == {"doubled": 1, "lost": 1, "resurrected": 2}


def test_tables_are_written_between_the_marks_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- chaos: begin -->\nold\n<!-- chaos: end -->\nafter\n")
    for content in ("new", "newer"):
        report.write(page, content)
        marked = f"<!-- chaos: begin -->\n{content}\n<!-- chaos: end -->"
        assert page.read_text() == f"before\n{marked}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="lacks"):
        report.write(page, "new")
