"""What a command loaded at its start is left out of later garbage collections."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import gc
import uvicorn
from evervec.cli import main
from evervec.worker.worker import Worker

before = gc.get_freeze_count()


def ran(*args, **named):
    print(before, gc.get_freeze_count() > 10_000, flush=True)


uvicorn.Server.run = Worker.run = ran
main()
"""


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["worker"]], ids=" ".join)
def test_what_was_loaded_is_left_out_of_collections(command: list[str], tmp_path: Path) -> None:
    asked = ["--store", str(tmp_path / "e.db"), "--embedder", "hashing", *command]
    given = [sys.executable, "-c", _PROGRAM, *asked]
    said = subprocess.run(given, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.splitlines()[0] == "0 True"
