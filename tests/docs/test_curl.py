"""Every curl call of docs/service.md works, and every route of the service is among them."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import evervec
from support.processes import until
from support.service import serving
from support.snippets import read_blocks
from support.world import fail_for_good

PAGE = Path(__file__).parents[2] / "docs" / "service.md"


def test_every_curl_call_on_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRON_SECRET", "tick")
    monkeypatch.setenv("WORKER_SECRET", "the worker's")
    calls = [block for block in read_blocks(PAGE) if block.language == "sh"]
    assert len(calls) > 20
    with evervec.open(tmp_path / "notes.db", embedder="hashing") as ev, serving() as serve:
        dead = ev.add("note", "it failed", id="dead")
        fail_for_good(ev, "dead")
        later = ev.add("note", "its time will come", id="later", delay=3600)
        served = serve(ev, workers=1)
        until(lambda: bool(ev.workers()), "the worker to be listed")
        environ = {
            **os.environ,
            "URL": served.url, "KEY": served.key(), "ADMIN": served.key(role="admin"),
            "JOB": str(later.job_id), "DEAD": str(dead.job_id), "WORKER": ev.queue.worker,
        }  # fmt: skip
        for call in calls:
            strict = 'curl() { command curl -sS --fail-with-body "$@"; }\n'
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", strict + call.content],
                env=environ, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
            )  # fmt: skip
            where = f"{PAGE.name}:{call.line}: {done.stdout}{done.stderr}"
            assert done.returncode == 0, where
            assert done.stdout.strip(), where


def test_every_route_is_on_the_page(tmp_path: Path) -> None:
    with evervec.open(tmp_path / "notes.db", embedder="hashing") as ev, serving() as serve:
        described = json.loads(serve(ev).http().get("/openapi.json").content)
    text = "\n".join(block.content for block in read_blocks(PAGE) if block.language == "sh")
    for path in described["paths"]:
        shape = re.sub(r"\\{\w+\\}", r"[\\w$]+", re.escape(path))
        assert re.search(rf'\$URL{shape}["?]', text), path
