"""MCP's own tools drive a real `evervec serve` and `evervec mcp`: the conformance tool and the Inspector.

They are npm packages and need Node 22 or later.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.node import Node, find_node
from support.service import ServiceProcess

SCENARIOS = (
    "server-initialize", "ping", "tools-list", "resources-list", "prompts-list",
    "dns-rebinding-protection",
)  # fmt: skip
"""those that need no tools made for the test, and no sessions: the server keeps none"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Node with the packages."""
    found = find_node(tmp_path_factory.mktemp("node"))
    found.install()
    return found


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    started = ServiceProcess(tmp_path)
    yield started
    started.close()


@pytest.mark.parametrize(
    "scenarios",
    [SCENARIOS[:3], pytest.param(SCENARIOS[3:], marks=pytest.mark.long)],
    ids=["first", "rest"],
)
def test_the_conformance_tool_finds_no_fault(
    node: Node, service: ServiceProcess, scenarios: tuple[str, ...]
) -> None:
    for scenario in scenarios:
        url = f"{service.url}/mcp"
        said = node.run("conformance", "server", "--url", url, "--scenario", scenario)
        passed = re.search(r"Passed: (\d+)/(\d+), 0 failed, 0 warnings", said)
        assert passed, said
        assert passed[1] == passed[2] != "0"


@pytest.mark.parametrize("way", [pytest.param("serve", marks=pytest.mark.long), "mcp"])
def test_the_inspector_remembers_reads_and_searches(
    node: Node, service: ServiceProcess, tmp_path: Path, way: str
) -> None:
    store = ["--store", str(tmp_path / "own.db"), "--embedder", "hashing"]
    target = {
        "serve": [f"{service.url}/mcp", "--transport", "http"],
        "mcp": [sys.executable, "-m", "evervec", *store, "mcp"],
    }[way]

    def ask(method: str, *options: str) -> Any:
        said = node.run("mcp-inspector", "--cli", *target, "--method", method, *options)
        return json.loads(said)

    assert len(ask("tools/list")["tools"]) == 6
    saved = ask("tools/call", "--tool-name", "remember", "--tool-arg", "text=green tea", "id=tea")
    assert saved["structuredContent"]["searchable"] is True
    found = ask("tools/call", "--tool-name", "search", "--tool-arg", "query=tea", "k=1")
    assert found["structuredContent"]["hits"][0]["id"] == "tea"
    if way == "serve":  # each question is a process of a second
        read = ask("resources/read", "--uri", "evervec://note/tea")
        assert "green tea" in read["contents"][0]["text"]
        assert ask("prompts/list")["prompts"][0]["name"] == "answer"
