"""The page on Django makes a project that does what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

from support.snippets import OUTPUT, read_blocks

PAGE = Path(__file__).parents[2] / "docs" / "django.md"
_SHELL = """
import django
django.setup()
from django.core.management import call_command
import io
worked = io.StringIO()
"""


def test_the_project_of_the_page_runs_as_the_page_says(tmp_path: Path) -> None:
    started = [sys.executable, "-m", "django", "startproject", "site_", str(tmp_path)]
    subprocess.run(started, check=True)
    (tmp_path / "blog").mkdir()
    (tmp_path / "blog" / "__init__.py").touch()
    shell, said, commands = "", "", []
    for block in read_blocks(PAGE):
        named = re.match(r"# (\S+)\n", block.content)
        if block.is_python and named:
            name = named[1]
            if name == "shell":
                shell = block.content
                continue
            folder = tmp_path if "/" in name else tmp_path / "site_"
            with (folder / name).open("a") as file:
                file.write(f"\n{block.content}\n")
        elif block.comment == OUTPUT:
            said = block.content
        elif block.language == "sh":
            commands = block.content.splitlines()
    assert len(commands) == 3
    for command in commands:
        drained = " --drain" if "worker" in command else ""
        manage(tmp_path, *(command + drained).split()[2:])
    code = _SHELL + re.sub(r"call_command\((.*?)\)", r"call_command(\1, stdout=worked)", shell)
    assert run(tmp_path, "-c", code).strip() == said.strip()
    assert "OK" in manage(tmp_path, "test", "-v2")
    assert "no issues" in manage(tmp_path, "check", "--database", "default")


def manage(folder: Path, *args: str) -> str:
    return run(folder, "manage.py", *args)


def run(folder: Path, *args: str) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("EVERVEC_")}
    ran = subprocess.run(
        [sys.executable, *args], cwd=folder, check=False, capture_output=True, text=True,
        env={**clean, "DJANGO_SETTINGS_MODULE": "site_.settings"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + (ran.stderr if "test" in args else "")
