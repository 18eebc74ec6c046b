"""What a record and a search cost as a collection grows, on each store and index.

Each contender runs in a process of its own, size by size: records of real words with mixtures of
real vectors (see growth_data), and an embedder of no cost. A record's cost is that of the last half
of the load; searches follow after what housekeeping does by itself. Results are kept in
benchmarks/results/growth/, a file for each contender, by size, so a run may measure some of them
(`--only`, `--sizes`) and leave the rest; the table and the plot show everything that is kept.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.growth_plot import draw
from benchmarks.growth_process import OURS, PEERS
from benchmarks.table import Line, at_least

RESULTS = Path(__file__).parent / "results"
_SIZES, _QUICK, _LARGE = (10_000, 100_000, 1_000_000), (1_000, 5_000), 5_000_000
_BESIDE = {"sqlite+lancedb": "lancedb", "sqlite+qdrant": "qdrant", "postgres": "pgvector"}
"""evervec's contenders and the same engine called directly; the others stand beside Chroma"""
_MODES = ("semantic", "filtered", "half", "text", "hybrid")
_RECALLS = {"recall": "", "filtered_recall": ", 1% pass a filter", "half_recall": ", 50% pass"}
_LETTERS = {"k": 1_000, "M": 1_000_000}
Kept = dict[str, dict[str, dict[str, Any]]]


def run(
    *, quick: bool, sizes: str = "", only: str = "", large: bool = False, draw_only: bool = False
) -> Sequence[Line]:
    folder = RESULTS / ("growth-quick" if quick else "growth")
    wanted = tuple(map(_number, sizes.split(","))) if sizes else _QUICK if quick else _SIZES
    names = only.split(",") if only else [*OURS, *PEERS]
    for name in [] if draw_only else names:
        if name not in OURS and name not in PEERS:
            sys.exit(f"there is no contender {name!r}; there are {', '.join([*OURS, *PEERS])}")
        for found in _measured(name, sorted({*wanted, *([_LARGE] if large else [])})):
            _keep(folder / f"{name}.json", found)
            print(f"  {name} {_short(found['size'])}: {_summary(found)}", flush=True)
    kept = {path.stem: _read(path) for path in sorted(folder.glob("*.json"))}
    if not quick and kept:
        draw(kept, RESULTS / "growth.svg")
    return list(_lines(kept))


def _measured(name: str, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.growth_process", name, ",".join(map(str, sizes))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode:
        print(f"  {name}: ended with {process.returncode}", flush=True)


def _keep(path: Path, found: dict[str, Any]) -> None:
    kept = _read(path)
    machine = {
        "when": datetime.now(UTC).isoformat(timespec="minutes"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    kept[str(found["size"])] = {**found, **machine}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    part.replace(path)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _lines(kept: Kept) -> Iterator[Line]:
    for name in OURS:
        beside = _BESIDE.get(name, "chroma")
        sizes = sorted(map(int, kept.get(name, {})))
        for size in sizes:
            mine, other = kept[name][str(size)], kept.get(beside, {}).get(str(size), {})
            yield from _of_size(f"{name}, {_short(size)}", mine, beside, other)
        if len(sizes) > 1:
            rates = [1e6 / kept[name][str(size)]["record_cpu_us"] for size in sizes]
            yield Line(
                f"{name}, {_short(sizes[-1])}: records/s of a processor", "/s", rates[-1],
                f"at {_short(sizes[0])}", rates[0], at_least(0.5),
            )  # fmt: skip


def _of_size(what: str, mine: dict[str, Any], beside: str, other: dict[str, Any]) -> Iterator[Line]:
    def line(name: str, unit: str, key: str, place: int | None = None) -> Line:
        own, its = ((one.get(key) if place is None else (one.get(key) or [None, None])[place])
                    for one in (mine, other))  # fmt: skip
        return Line(f"{what}: {name}", unit, own, beside if its else "", its)

    yield line("a record", "µs", "record_us")
    yield line("a record, processors", "µs", "record_cpu_us")
    for mode in (mode for mode in _MODES if mode in mine):
        yield line(f"{mode}, p50", "ms", mode, 0)
        yield line(f"{mode}, p99", "ms", mode, 1)
        yield line(f"{mode}, processors", "ms", f"{mode}_cpu_ms")
    yield line("memory", "MB", "memory_mb")
    yield line("disk", "MB", "disk_mb")
    for key in (key for key in _RECALLS if key in mine):
        name = f"{what}: recall@10{_RECALLS[key]}"
        yield Line(name, "", mine[key], target=at_least(0.95), own=True)


def _summary(found: dict[str, Any]) -> str:
    modes = (m for m in _MODES if m in found)
    asked = ", ".join(f"{m} {found[m][0]:.1f}/{found[m][1]:.1f} ms" for m in modes)
    return (
        f"{found['record_us']:.0f} µs a record ({found['record_cpu_us']:.0f} of processors), {asked}, "
        f"recall {', '.join(f'{found[key]:.3f}' for key in _RECALLS)}, {found['memory_mb']:.0f} MB, {found['disk_mb']:.0f} MB on disk, "
        f"settled in {found['settle_s']:.1f} s"
    )


def _number(text: str) -> int:
    return int(float(text[:-1]) * _LETTERS[text[-1]]) if text[-1] in _LETTERS else int(text)


def _short(size: int) -> str:
    for letter, value in reversed(_LETTERS.items()):
        if size >= value:
            return f"{size / value:g}{letter}"
    return str(size)
