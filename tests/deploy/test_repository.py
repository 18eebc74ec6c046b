"""The files by which a host of repositories and pre-commit check changes say what the project says."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"


def test_the_workflow_is_valid_and_runs_every_python_that_the_package_names() -> None:
    tool: list[str | Path] = [
        BIN / "check-jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
    ]
    judged = subprocess.run(
        [*tool, WORKFLOW], capture_output=True, text=True, check=False, timeout=120
    )
    assert judged.returncode == 0, judged.stdout
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    jobs = yaml.safe_load(WORKFLOW.read_text("utf-8"))["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == named
    assert project["requires-python"] == f">={named[0]}"


def test_pre_commit_runs_what_make_check_runs() -> None:
    given = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    hooks = {hook["entry"].split()[0] for repo in given["repos"] for hook in repo["hooks"]}
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (check,) = re.findall(r"^check:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert {Path(hook).name for hook in hooks} == set(re.findall(r"\$\(BIN\)/([\w-]+)", check))


def test_issue_templates_begin_with_a_name_and_a_purpose() -> None:
    templates = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.md"))
    assert len(templates) == 2
    for template in templates:
        _, head, _ = template.read_text("utf-8").split("---\n", 2)
        assert {"name", "about", "labels"} == yaml.safe_load(head).keys()
