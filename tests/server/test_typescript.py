"""A TypeScript client, generated from the OpenAPI document by a tool of others, compiles strictly and
drives a real `evervec serve` from Node."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import evervec
from evervec.server.app import make_app
from evervec.server.keys import Keys
from support.node import Node, find_node
from support.service import ServiceProcess

SOURCES = Path(__file__).with_name("typescript")
PAGE = Path(__file__).parents[2] / "docs" / "service.md"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A project with the generated client and programs that use it, compiled strictly."""
    folder = tmp_path_factory.mktemp("typescript")
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
    (example,) = re.findall(r"^```ts\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (folder / "page.ts").write_text(example)
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    made = find_node(folder)
    made.install()
    with evervec.open("memory:", embedder="hashing") as ev:
        (folder / "openapi.json").write_text(json.dumps(make_app(ev).openapi()))
    made.run("openapi-ts", "--silent")
    made.run("tsc", "-p", ".")
    return made


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    started = ServiceProcess(tmp_path)
    yield started
    started.close()


@pytest.fixture
def key(service: ServiceProcess, tmp_path: Path) -> str:
    """A writer's key."""
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:
        return Keys(ev.store).create("default", "typescript", "writer").key


def test_a_generated_client_drives_the_service(
    node: Node, service: ServiceProcess, key: str
) -> None:
    assert node.run("built/drive.js", service.url, key) == "done\n"


def test_the_program_on_the_page_runs_and_prints_what_the_page_says(
    node: Node, service: ServiceProcess, key: str
) -> None:
    printed = node.run("built/page.js", URL=service.url, KEY=key)
    assert printed == "[ [ 'note', 'tea' ] ]\n2\n"
    assert all(f"`{line}`" in PAGE.read_text() for line in printed.splitlines())


def test_wrong_uses_of_the_generated_client_do_not_compile(node: Node) -> None:
    wrong = [
        'await search({ body: { query: "tea", mode: "fuzzy" } });',
        'await search({ body: { query: "tea", k: "ten" } });',
        'await getRecord({ path: { kind: "note" } });',
        'await addRecord({ body: { text: "no kind" } });',
        '(await getRecord({ path: { kind: "note", id: "1" } })).data.text;',
        '(await addRecord({ body: { kind: "note", text: "a" } })).error.detail;',
    ]
    first = 'import { addRecord, getRecord, search } from "./client/sdk.gen.js";'
    (node.folder / "wrong.ts").write_text("\n".join((first, *wrong)))
    options = ("--target", "es2022", "--module", "nodenext", "--skipLibCheck")
    with pytest.raises(AssertionError) as refused:
        node.run("tsc", "--strict", "--noEmit", *options, "wrong.ts")
    lines = {int(line) for line in re.findall(r"wrong\.ts\((\d+),", str(refused.value))}
    assert lines == set(range(2, 2 + len(wrong)))
