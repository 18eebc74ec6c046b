"""Run what could see a planted defect against a copy of the library that has it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mutants.patches import ROOT, SECONDS, BadPatch, Patch, copy_source

EXPLORER_MINUTES = 2
"""for the explorer to find a defect, by the processor's time of two processes"""
_PATIENCE = 4
"""how much longer that may be by the clock, on a busy machine"""
_PROCESSES = 2
_PROCESSOR = re.compile(r"^([\d.]+) s of processor time$", re.MULTILINE)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+(?: [^-\s]\S*)*)", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """What became of one defect."""

    patch: Patch
    finder: str
    """the first test that failed, or what else told; empty: nobody did"""
    error: str
    """why it could not be tried; else empty"""
    seconds: float

    @property
    def found(self) -> bool:
        return bool(self.finder)

    def __str__(self) -> str:
        if self.error:
            return f"ERROR: {self.error}"
        return self.finder or "SURVIVED"


def try_patch(patch: Patch | None, tests: tuple[str, ...], select: str = "") -> tuple[str, str]:
    """Run tests on the library with a defect, or as it is; who found it, and what went wrong."""
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider",
        "-p", "no:schemathesis",
        "-rfE", "--tb=no", "--no-header", *(["-k", select] if select else []), *tests,
    ]  # fmt: skip
    seconds = patch.seconds if patch else SECONDS
    try:
        done = _run_with(patch, command, seconds)
    except subprocess.TimeoutExpired:
        return f"time limit ({seconds:.0f} s)", ""
    said = done.stdout.decode(errors="replace")
    failed = _FAILED.search(said)
    if done.returncode == 0:
        return "", ""
    if done.returncode == 1 and failed:
        return failed[1], ""
    if done.returncode < 0:
        return f"crash (signal {-done.returncode})", ""
    if done.returncode == 1:
        return "a test that hangs", ""
    return "", f"pytest ended with {done.returncode}: {(failed or [said[-500:]])[0].strip()}"


def explore(patch: Patch | None) -> tuple[str, str]:
    """Let the explorer look for a defect; what it found, and what went wrong."""
    engine = patch.explorer if patch else "memory"
    minutes = _PATIENCE * EXPLORER_MINUTES
    command = [
        sys.executable, "-m", "explorer", "--minutes", str(minutes), "--stop-at-first",
        "--engine", engine, "--processes", str(_PROCESSES), "--shrink", "0",
    ]  # fmt: skip
    try:
        done = _run_with(patch, command, 60 * minutes + 60)
    except subprocess.TimeoutExpired:
        return "", "the explorer did not end in time"
    said = done.stdout.decode(errors="replace").strip()
    used = _PROCESSOR.search(said)
    if done.returncode not in (0, 1) or used is None:
        return "", f"the explorer failed: {said[-500:]}"
    if "FAILED (" not in said:
        return "", ""
    seconds, most = float(used[1]), 60 * EXPLORER_MINUTES * _PROCESSES
    if seconds > most:
        return "", f"found after {seconds:.0f} s of processor time, which may be {most} s"
    return f"explorer, {seconds:.0f} s of processor time", ""


def judge(patch: Patch, *, explorer: bool = False) -> Verdict:
    """Whether a defect is found, and by whom."""
    began = time.monotonic()
    try:
        finder, error = explore(patch) if explorer else try_patch(patch, patch.tests, patch.select)
    except BadPatch as bad:
        finder, error = "", str(bad)
    return Verdict(patch, finder, error, time.monotonic() - began)


def _run_with(
    patch: Patch | None, command: list[str], seconds: float
) -> subprocess.CompletedProcess[bytes]:
    """Run a program whose library has a defect. What it started ends with it."""
    with TemporaryDirectory(prefix="evervec-mutant-") as folder:
        source = ROOT / "src"
        if patch is not None:
            copy_source(Path(folder))
            patch.apply(Path(folder))
            source = Path(folder) / "src"
        path = os.pathsep.join([str(source), str(ROOT / "tests")])
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=seconds)
        except BaseException:
            _end(process)
            raise
        return subprocess.CompletedProcess(command, process.returncode, said)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a run and all that it started: first so that it can stop its servers itself."""
    for number, patience in ((signal.SIGINT, 10.0), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=patience)
            return
