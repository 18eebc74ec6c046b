"""The writer lock: who waits, for how long, and what a dead or busy holder means for others."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from evervec import Status
from evervec.errors import IndexBusy
from evervec.indexes import writer_lock
from evervec.indexes.base import patience
from evervec.indexes.holder import Holder, described
from evervec.indexes.writer_lock import ThreadLock
from evervec.stores.values import LockHolder
from indexes.conftest import Make
from indexes.test_races import RECORD, SEQ, version_of, words_in
from support.processes import until
from support.vectors import change
from support.world import KIND, World, assert_in_step, job_of, work

_WAIT = "import sys; print('up', flush=True); sys.stdin.read()"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    """Another process of this machine, alive."""
    with subprocess.Popen(
        [sys.executable, "-c", _WAIT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        yield child
        child.kill()


def holder_of(pid: int) -> Holder:
    """What that process would call itself."""
    started = _fields(pid)[19]
    return Holder.here("x")._replace(pid=pid, started=started)


def _fields(pid: int) -> list[str]:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


def hold(world: World, holder: str = "somebody else") -> str:
    """Another process has the writer lock, for as long as the world's clock stands still."""
    token = world.ev.store.shared.lock(f"writer {world.ev.index.url}", holder, 60)
    assert token is not None
    return token


def holder(world: World) -> LockHolder | None:
    return world.ev.store.shared.lock_holder(f"writer {world.ev.index.url}")


# who is dead
def test_a_process_is_dead_once_it_ended_and_not_while_it_is_stopped(
    process: subprocess.Popen[str],
) -> None:
    known = holder_of(process.pid)
    assert not known.is_dead()
    process.send_signal(signal.SIGSTOP)
    until(lambda: _fields(process.pid)[0] == "T", "the process to be stopped")
    assert not known.is_dead()
    process.kill()
    until(known.is_dead, "a process that ended, before its parent knows")
    assert _fields(process.pid)[0] == "Z"
    process.wait()
    assert known.is_dead()


def test_a_later_process_with_the_same_pid_does_not_stand_for_a_dead_one() -> None:
    me = Holder.here("x")
    assert not me.is_dead()
    assert me._replace(started="1").is_dead()


@pytest.mark.parametrize(
    ("host", "view"),
    [("another", None), (None, "another boot/pid:[1]/time:[1]"), (None, "-")],
)
def test_of_a_process_elsewhere_nothing_is_concluded(
    process: subprocess.Popen[str], host: str | None, view: str | None
) -> None:
    known = holder_of(process.pid)
    process.kill()
    process.wait()
    assert known.is_dead()
    assert not known._replace(host=host or known.host, view=view or known.view).is_dead()


def test_a_process_that_cannot_tell_concludes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = ("-", "-")
    monkeypatch.setattr("evervec.indexes.holder._view", lambda _: unknown)
    assert not Holder.here("x")._replace(pid=2**22 + 1).is_dead()


def test_a_forked_child_is_a_holder_of_its_own() -> None:
    mine, (read, write) = Holder.here("x"), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, str(Holder.here("x")).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = Holder.parse(os.read(read, 1000).decode())
    os.close(read)
    os.close(write)
    assert theirs is not None
    assert (theirs.pid, theirs.view) == (child, mine.view)
    assert theirs.is_dead()


@pytest.mark.parametrize("text", ["", "0123abcd", "a b c d e", "h -1 v s o", "h 1 v s o more"])
def test_other_holders_are_unknown(text: str) -> None:
    assert Holder.parse(text) is None
    assert described(text) == "another process"


def test_a_holder_survives_being_written_down() -> None:
    me = Holder.here("x")
    assert Holder.parse(str(me)) == me


# the lock of a dead writer
def test_the_lock_of_a_writer_that_died_here_is_taken_at_once(
    make: Make, process: subprocess.Popen[str], caplog: pytest.LogCaptureFixture
) -> None:
    world = make("lancedb", writer_lock_seconds=60)
    hold(world, str(holder_of(process.pid)))
    new = change(version_of(world), RECORD, SEQ, ["a"])
    with patience(0), pytest.raises(IndexBusy, match=f"process {process.pid}"):
        world.ev.index.apply([new])
    process.kill()
    process.wait()
    with patience(0):
        world.ev.index.apply([new])
    assert len(words_in(world)) == 1
    assert f"process {process.pid} on" in caplog.text
    assert holder(world) is None


# waiting
def test_waiting_ends_with_the_callers_patience_and_goes_through_when_the_lock_is_free(
    make: Make,
) -> None:
    world = make("lancedb")
    held = (f"writer {world.ev.index.url}", hold(world))
    late = threading.Timer(5, world.ev.store.shared.unlock, held)  # who waits longer gets the lock
    late.start()
    try:
        with patience(0.05), pytest.raises(IndexBusy, match="another process is writing"):
            world.ev.index.apply([change(version_of(world), RECORD, SEQ, ["a"])])
    finally:
        late.cancel()
    world.ev.store.shared.unlock(*held)
    with patience(0.05):
        world.ev.index.apply([change(version_of(world), RECORD, SEQ, ["a"])])


def test_threads_of_a_process_have_patience_too() -> None:
    both = ThreadLock("here")
    refused = []

    def try_it() -> None:
        with patience(0.01):
            try:
                with both.hold():
                    pass
            except IndexBusy as error:
                refused.append(str(error))

    with both.hold():
        other = threading.Thread(target=try_it)
        other.start()
        other.join()
        with patience(0), both.hold():  # its own is no other's
            pass
    assert "another thread" in refused[0]
    with patience(0), both.hold():
        pass


def test_a_noticeable_wait_is_logged_with_its_holder_and_its_end(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer_lock, "_NOTICEABLE", 0.5)
    world = make("lancedb")
    me = Holder.here("other")
    token = hold(world, str(me))
    changes = [change(version_of(world), RECORD, SEQ, ["a"])]
    waiting = threading.Thread(target=world.ev.index.apply, args=(changes,))
    with caplog.at_level(logging.INFO, logger="evervec"):
        waiting.start()
        until(lambda: f"waiting for process {me.pid} on {me.host}" in caplog.text, "the log")
        world.ev.store.shared.unlock(f"writer {world.ev.index.url}", token)
        waiting.join()
    assert caplog.text.count("waiting for") == 1
    assert caplog.messages[-1].startswith(f"writing to {world.ev.index.url} after")


def test_a_lock_that_is_held_for_long_is_renewed_until_it_ends(make: Make) -> None:
    world = make("lancedb", writer_lock_seconds=0.05)
    seen = set()

    def renewed() -> bool:
        found = holder(world)
        assert found is not None
        seen.add(found.token)
        return len(seen) > 2

    with world.ev.index._writer_lock.hold():  # type: ignore[attr-defined]
        until(renewed, "the lock to be renewed twice")
    assert holder(world) is None


# workers
def test_a_worker_goes_on_embedding_while_the_index_is_busy(make: Make) -> None:
    world = make("lancedb", batch_size=2)
    texts = {str(n): f"word{n}" for n in range(6)}
    for id, text in texts.items():
        world.ev.add(KIND, text, id=id)
    token = hold(world)
    with world.ev.worker():
        until(lambda: set(texts.values()) <= set(world.embedder.texts), "all to be embedded")
        assert not any(job_of(world.ev, id).status is Status.DONE for id in texts)
        world.ev.store.shared.unlock(f"writer {world.ev.index.url}", token)
        until(lambda: job_of(world.ev, "5").status is Status.DONE, "all to be written")
    assert_in_step(world.ev, texts)
    assert len(world.embedder.texts) == len(set(world.embedder.texts)), "nothing is embedded twice"


def test_a_worker_that_waits_for_the_index_stops_within_its_drain(make: Make) -> None:
    world = make("lancedb", drain_seconds=0.1)
    world.ev.add(KIND, "alpha", id="1")
    hold(world)
    with world.ev.worker():
        until(lambda: "alpha" in world.embedder.texts, "it to be embedded")
    job = job_of(world.ev, "1")
    assert (job.status, job.attempts) == (Status.PENDING, 0)


def test_process_all_waits_for_the_lock(make: Make) -> None:
    world = make("lancedb")
    world.ev.add(KIND, "alpha", id="1")
    token = hold(world)
    thread = threading.Thread(target=world.ev.process_all)
    thread.start()
    until(lambda: "alpha" in world.embedder.texts, "it to be embedded")
    assert job_of(world.ev, "1").status is Status.PROCESSING
    world.ev.store.shared.unlock(f"writer {world.ev.index.url}", token)
    thread.join()
    assert_in_step(world.ev, {"1": "alpha"})


def test_care_of_a_busy_index_is_put_off(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    world = make("lancedb")
    token = hold(world)
    with caplog.at_level(logging.INFO, logger="evervec"), patience(0):
        world.ev._housekeeping.tend_index()
    assert "postponed to the next housekeeping" in caplog.text
    assert not world.ev._housekeeping._index_away, "busy is not away"
    world.ev.store.shared.unlock(f"writer {world.ev.index.url}", token)
    work(world.ev)
