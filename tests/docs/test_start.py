"""The commands of the first pages work, in an empty folder, in the order in which they are shown."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docsite.pages import DOCS, navigation
from support.snippets import read_blocks

PAGES = [DOCS / path for section, path in navigation() if section == "Start"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_on_the_page_works(page: Path, tmp_path: Path) -> None:
    commands = "\n".join(block.content for block in read_blocks(page) if block.language == "sh")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("EVERVEC_")}
    environ["EVERVEC_EMBEDDER"] = "hashing"  # the pages' own model takes seconds to load
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        env=environ, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
