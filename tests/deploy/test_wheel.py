"""The wheel has everything that the package needs, and works without the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for backend in ("hatchling", "hatch_fancy_pypi_readme"):
        pytest.importorskip(backend, reason="the build backend is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(build, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("*.whl")
    return made


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    src = PROJECT / "src"
    files = {
        path.relative_to(src).as_posix()
        for path in (src / "evervec").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        (about,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(packed.read(about).decode())
    assert files - names == set()
    assert {name for name in names if ".dist-info/" not in name} - files == set()
    page = str(metadata.get_payload())
    assert page.startswith("# evervec")
    assert "](docs/" not in page  # a package index has no files beside the page
    assert {"local", "server", "mcp", "pdf", "postgres"} <= set(
        metadata.get_all("Provides-Extra", [])
    )


def test_the_wheel_works_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    place, work = tmp_path / "installed", tmp_path / "work"
    work.mkdir()
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(place)
    (work / "tea.md").write_text("# Tea\n\nTea is grown on hills in Assam.\n")
    env = {**os.environ, "PYTHONPATH": str(place), "EVERVEC_EMBEDDER": "hashing"}

    def run(*args: str) -> str:
        done = subprocess.run(
            [sys.executable, *args], cwd=work, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("-c", "import evervec; print(evervec.__file__)").startswith(str(place))
    assert "1 added" in run("-m", "evervec", "add", "note", "tea.md")
    assert "tea.md:3" in run("-m", "evervec", "search", "assam")
    assert "serve" in run("-m", "evervec", "--help")
    page = (
        "import evervec\n"
        "from evervec.server.app import make_app\n"
        "from starlette.testclient import TestClient\n"
        "with evervec.open('evervec.db') as ev:\n"
        "    here = {'base_url': 'http://127.0.0.1', 'client': ('127.0.0.1', 50000)}\n"
        "    with TestClient(make_app(ev), **here) as client:\n"
        "        print(client.get('/').status_code)\n"
    )
    assert run("-c", page).strip() == "200"
