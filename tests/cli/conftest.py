"""The command line in a folder with an empty store, and notes to add."""

from __future__ import annotations

from pathlib import Path

import pytest

import evervec
from support.command import Run, runner


@pytest.fixture
def run(tmp_path: Path) -> Run:
    evervec.open(tmp_path / "evervec.db", embedder="hashing").close()
    return runner(tmp_path)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / "tea.md").write_text("# All about tea\n\nTea is grown on hills in Assam.\n")
    (folder / "deep" / "rock.txt").write_text("Granite is a rock of quartz and feldspar.\n")
    (folder / "page.html").write_text(
        "<html><head><title>Moon</title><style>p {}</style></head>"
        "<body><script>hidden()</script><p>The tide follows the <b>moon</b>.</p></body></html>"
    )
    (folder / "picture.bin").write_bytes(b"\x89PNG\0\0")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("not for search")
    return folder
