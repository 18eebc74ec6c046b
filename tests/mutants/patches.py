"""Planted defects as patches, each with a header that says what it breaks and who could see it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "patches"
KEYS = {"Breaks", "Finding", "Explorer", "Tests", "Select", "Seconds"}
SECONDS = 110.0
"""for the tests of one defect, below the time after which a single test shows where it hangs"""
_FILE = re.compile(r"^--- a/(\S+)$", re.MULTILINE)


class BadPatch(Exception):
    """A patch that cannot be used, and why."""


@dataclass(frozen=True)
class Patch:
    """One planted defect."""

    name: str
    path: Path
    breaks: str
    """the promise that does not hold with it"""
    tests: tuple[str, ...]
    """files, or tests in them, that could see it"""
    select: str
    """an expression for `pytest -k`, to keep the tests few; may be empty"""
    seconds: float
    """after which its tests are taken to hang, which tells of it too"""
    explorer: str
    """the engine on which the explorer must find it too; may be empty"""
    files: tuple[str, ...]
    """what it changes, as paths from the root of the tree"""

    def apply(self, folder: Path) -> None:
        """Change the files below `folder`, which is laid out like the root of the tree."""
        # without it git would look for a repository around the folder, and skip what is not in it
        env = os.environ | {"GIT_CEILING_DIRECTORIES": str(folder.resolve().parent)}
        done = subprocess.run(
            ["git", "apply", str(self.path)],
            cwd=folder, env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise BadPatch(f"{self.name} does not apply: {done.stderr.strip()}")


def read_patch(path: Path) -> Patch:
    """`BadPatch` if the header lacks something, or has what nobody knows."""
    text = path.read_text()
    header, _, diff = text.partition("\n\n")
    said: dict[str, str] = {}
    for line in header.splitlines():
        key, colon, value = line.partition(":")
        if not colon or key not in KEYS or key in said or not value.strip():
            raise BadPatch(f"{path.name}: header line {line!r} is not one of {sorted(KEYS)}")
        said[key] = value.strip()
    explorer = said.get("Explorer", "").replace("yes", "memory")
    if "Breaks" not in said:
        raise BadPatch(f"{path.name}: the header has no `Breaks:`")
    if "Tests" not in said and not explorer:
        raise BadPatch(f"{path.name}: the header names no `Tests:`, nor an `Explorer:`")
    files = tuple(_FILE.findall(diff))
    if not files or any(not file.startswith("src/") for file in files):
        raise BadPatch(f"{path.name}: changes {', '.join(files) or 'nothing'}, not files in src/")
    tests = tuple(said.get("Tests", "").split())
    select = said.get("Select", "")
    seconds = float(said.get("Seconds", SECONDS))
    return Patch(path.stem, path, said["Breaks"], tests, select, seconds, explorer, files)


def all_patches() -> list[Patch]:
    return [read_patch(path) for path in sorted(FOLDER.glob("*.patch"))]


def copy_files(files: tuple[str, ...], folder: Path) -> None:
    """Copy some files of the tree into a folder, each to its place."""
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, folder / file)


def copy_source(folder: Path) -> None:
    """Copy all of `src` into a folder, with what Python compiled of it."""
    shutil.copytree(ROOT / "src", folder / "src")
