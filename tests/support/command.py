"""The command line as a user meets it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Protocol

from support.forks import Fork


class Run(Protocol):
    """Runs `evervec` with arguments and expects its exit code."""

    def __call__(
        self, *args: str, code: int = 0, input: str | None = None, knows: str = ""
    ) -> subprocess.CompletedProcess[str]: ...


def runner(folder: Path) -> Run:
    """Run evervec in a folder, with the embedder that needs no model."""

    def call(
        *args: str, code: int = 0, input: str | None = None, knows: str = ""
    ) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("EVERVEC_")}
        environ = {**clean, "EVERVEC_EMBEDDER": "hashing"}
        done = run_module(
            "evervec", *args, folder=folder, environ=environ, input=input, knows=knows
        )
        assert done.returncode == code, f"{args}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    return call


def run_module(
    module: str,
    *args: str,
    folder: Path,
    environ: Mapping[str, str],
    input: str | None = None,
    knows: str = "",
) -> subprocess.CompletedProcess[str]:
    """What `python -m module` does in a folder; `knows` as `Fork` has it."""
    with TemporaryFile("w+") as given, TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        given.write(input or "")
        given.seek(0)
        files = (given.fileno(), out.fileno(), err.fileno())
        ended = Fork(module, args, files, folder=folder, environ=environ, knows=knows).wait()
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(args, ended, out.read(), err.read())
