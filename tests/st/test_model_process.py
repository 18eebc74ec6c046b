"""A model in a process of its own."""

import gc
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import evervec
from evervec.embedders.st import StEmbedder
from evervec.embedders.st.process import ModelProcess, _spare_processors
from evervec.errors import ProviderUnavailable, SettingsError
from st.conftest import Open
from support.small_models import WIDTH

TEXTS = [
    "a",
    "",
    "日本語のテキスト",
    "word " * 2000,
    *(f"text {n} " * (n % 40) for n in range(300)),
]


def child_of(embedder: StEmbedder) -> int:
    running = embedder._running()
    assert isinstance(running, ModelProcess)
    return running._running()._process.pid


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_makes_the_vectors_of_a_model_here(folder: Path, opened: Open) -> None:
    apart, here = opened(folder, process=True), opened(folder)
    np.testing.assert_allclose(apart.embed(TEXTS), here.embed(TEXTS), atol=1e-5)
    np.testing.assert_allclose(apart.embed_query("a"), here.embed_query("a"), atol=1e-5)
    assert apart.embed([]).shape == (0, WIDTH)
    assert apart.embed(["a"]).flags.writeable
    assert isinstance(apart._running(), ModelProcess)


@pytest.mark.parametrize(
    ("devices", "threads"), [(["cuda:0", "cuda:1"], [1]), (["cpu"], []), (["cuda:0", "cpu"], [])]
)
def test_beside_gpus_the_processors_are_for_the_tokenizer(
    devices: list[str], threads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    given: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", given.append)
    _spare_processors(devices)
    assert given == threads


def test_this_process_does_not_load_torch(folder: Path) -> None:
    program = f"""
import sys
from evervec.embedders.st import StEmbedder
embedder = StEmbedder({str(folder)!r}, device="cpu", process=True)
assert embedder.embed(["text"]).shape == (1, {WIDTH})
assert "torch" not in sys.modules
print(embedder._running()._running()._process.pid)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], timeout=120, check=True, capture_output=True, text=True
    )
    assert ended.stderr == ""
    assert not lives(int(ended.stdout)), "it ends with its parent"


def test_many_threads_get_their_own_answers(folder: Path, opened: Open) -> None:
    embedder = opened(folder, process=True)
    wanted = embedder.embed(TEXTS[:40])
    found: list[bool] = []

    def check(start: int) -> None:
        for n in range(start, 40):
            made = embedder.embed(TEXTS[n : n + 1])
            found.append(bool(np.allclose(made, wanted[n : n + 1], atol=1e-5)))

    threads = [threading.Thread(target=check, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(found) == sum(40 - n for n in range(8))
    assert all(found)


def test_calls_under_way_fail_when_it_dies_and_the_next_starts_another(
    folder: Path, opened: Open
) -> None:
    embedder = opened(folder, process=True)
    wanted = embedder.embed(["text"])
    pid = child_of(embedder)
    os.kill(pid, signal.SIGSTOP)  # so that the call is under way
    failed: list[Exception] = []

    def call() -> None:
        try:
            embedder.embed(TEXTS)
        except ProviderUnavailable as error:
            failed.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    os.kill(pid, signal.SIGKILL)
    thread.join(60)
    assert failed
    assert "signal 9" in str(failed[0])
    np.testing.assert_allclose(embedder.embed(["text"]), wanted, atol=1e-6)
    assert child_of(embedder) != pid


def test_a_worker_goes_on_after_it_died(folder: Path, tmp_path: Path, opened: Open) -> None:
    embedder = opened(folder, process=True)
    with evervec.open(tmp_path / "a.db", embedder=embedder, backoff_seconds=0.01) as ev:
        ev.add("note", "all about apples", id="1")
        assert ev.process_all().succeeded == 1
        os.kill(child_of(embedder), signal.SIGKILL)
        with ev.worker():
            ticket = ev.add("note", "all about pears", id="2")
            assert ev.wait(ticket, timeout=60).attempts <= 1, "an outage spends no attempt"
        assert ev.verify().complete


def test_it_does_not_heed_the_signals_that_stop_its_parent(folder: Path, opened: Open) -> None:
    embedder = opened(folder, process=True)
    embedder.embed(["text"])
    pid = child_of(embedder)
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    embedder.embed(["text"])
    assert child_of(embedder) == pid


def test_it_ends_when_its_parent_is_killed(folder: Path) -> None:
    program = f"""
import signal
from evervec.embedders.st import StEmbedder
embedder = StEmbedder({str(folder)!r}, device="cpu", process=True)
embedder.embed(["text"])
print(embedder._running()._running()._process.pid, flush=True)
signal.pause()
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    watched = os.pidfd_open(pid)
    parent.kill()
    parent.communicate()
    assert select.select([watched], [], [], 30)[0]


def test_large_calls_use_the_same_files_again(folder: Path, opened: Open) -> None:
    embedder, texts = opened(folder, process=True), [f"text {n}" for n in range(20_000)]
    vectors = embedder.embed(texts)
    running = embedder._running()
    assert isinstance(running, ModelProcess)
    path = running._running().folder
    files = {file.name: file.stat().st_ino for file in path.iterdir()}
    np.testing.assert_allclose(embedder.embed(texts[::-2]), vectors[::-2], atol=1e-5)
    assert {file.name: file.stat().st_ino for file in path.iterdir()} == files
    assert len(files) == 2  # of the texts and of their vectors
    embedder.close()
    assert not path.exists()


def test_closing_ends_it_and_calls_after_that_say_so(folder: Path, opened: Open) -> None:
    embedder = opened(folder, process=True)
    embedder.embed(["text"])
    pid = child_of(embedder)
    embedder.close()
    assert not lives(pid)
    with pytest.raises(ProviderUnavailable, match="closed"):
        embedder.embed(["text"])


def test_an_embedder_that_is_forgotten_ends_it(folder: Path) -> None:
    embedder = StEmbedder(str(folder), device="cpu", process=True)
    embedder.embed(["text"])
    pid = child_of(embedder)
    del embedder
    gc.collect()
    assert not lives(pid)


def test_a_fork_starts_one_of_its_own(folder: Path) -> None:
    program = f"""
import os
from evervec.embedders.st import StEmbedder
embedder = StEmbedder({str(folder)!r}, device="cpu", process=True)
embedder.embed(["text"])
mine = embedder._running()._running()._process.pid
child = os.fork()
if child == 0:
    embedder.embed(["text"])
    assert embedder._running()._running()._process.pid != mine
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
embedder.embed(["text"])
assert embedder._running()._running()._process.pid == mine
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], timeout=120, check=True)


def test_what_is_wrong_with_a_model_is_raised_here(
    folder: Path, tmp_path: Path, opened: Open
) -> None:
    other = shutil.copytree(folder, tmp_path / "broken")
    for weights in other.glob("*.safetensors"):
        weights.write_bytes(b"rubbish")
    with pytest.raises(SettingsError, match="broken cannot be loaded"):
        opened(other, process=True).embed(["text"])
    with pytest.raises(SettingsError, match="st_device='nonsense:0' cannot be used"):
        opened(folder, process=True, device="nonsense:0").embed(["text"])
    with pytest.raises(TypeError):
        opened(folder, process=True).embed([7])  # type: ignore[list-item]
