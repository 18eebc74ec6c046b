"""The example for Ray Data, with an embedder that needs no model."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import evervec

pytest.importorskip("ray")

EXAMPLE = Path(__file__).parents[2] / "examples" / "bulk" / "ray_data.py"


def test_ray_data_embeds_what_waits(tmp_path: Path) -> None:
    with evervec.open(tmp_path / "a.db", embedder="hashing") as ev:
        list(ev.add_many("note", ({"id": n, "text": f"text {n}"} for n in range(500))))
        ev.add("note", "some words to fill a text. " * 300, id="long")
        assert ev.export_pending(tmp_path / "out.parquet").chunks > 501
        environ = {**os.environ, "RAY_raylet_start_wait_time_s": "300"}
        subprocess.run(
            [sys.executable, EXAMPLE, tmp_path / "out.parquet", tmp_path / "vectors", "hashing"],
            check=True, timeout=600, env=environ,
        )  # fmt: skip
        done = ev.import_vectors(tmp_path / "vectors")
        assert (done.records, done.written, done.invalid) == (501, 501, 0)
        assert ev.verify().complete
