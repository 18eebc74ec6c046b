"""`python -m benchmarks [name …] [--quick]`: one table for each question."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import sqlite3
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.table import Line, show

QUICK_NAMES = ("queue", "ingest", "backlog", "freshness", "search", "edits", "providers", "verify")
SLOW_NAMES = (
    "telemetry",
    "service",
    "attached",
    "postgres",
    "indexes",
    "local",
    "retrieval",
    "transfer",
    "growth",
    "asyncio",
    "streams",
    "dashboard",
    "st",
    "gpu",
    "bulk",
    "fleet",
    "sizing",
    "files",
    "pgsize",
    "partitions",
)
NAMES = (*QUICK_NAMES, *SLOW_NAMES)
"""Those behind the quick ones take minutes, for a server, an engine or a real model, and run only
when named."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "name", nargs="*", help=f"which of {', '.join(NAMES)}; default the first {len(QUICK_NAMES)}"
    )
    parser.add_argument("--quick", action="store_true", help="smaller numbers, within a minute")
    growth = parser.add_argument_group("growth", "the benchmark of that name takes hours in whole")
    growth.add_argument("--sizes", default="", help="such as 10k,100k; default 10k,100k,1M")
    growth.add_argument(
        "--only",
        default="",
        help="contenders, such as sqlite,chroma; pairs of transfer, such as sqlite-postgres",
    )
    growth.add_argument("--large", action="store_true", help="5M too")
    growth.add_argument(
        "--draw", action="store_true", help="only the table and plot of kept results"
    )
    given = parser.parse_args(arguments)
    for name in given.name:
        if name not in NAMES:
            parser.error(f"there is no benchmark {name!r}; there are {', '.join(NAMES)}")
    print(
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}. "
        "A ratio is evervec's number over the one beside it."
    )
    lines: list[Line] = []
    for name in given.name or QUICK_NAMES:
        module = importlib.import_module(f"benchmarks.{name}")
        start = time.perf_counter()
        options: dict[str, Any] = {}
        if name == "growth":
            options = {"sizes": given.sizes, "only": given.only, "large": given.large}
            options["draw_only"] = given.draw
        if name == "transfer":
            options = {"only": given.only}
        found = module.run(quick=given.quick, **options)
        heading = (module.__doc__ or name).splitlines()[0]
        show(f"{name} · {heading} ({time.perf_counter() - start:.0f} s)", found)
        sys.stdout.flush()
        lines += found
    judged = [line.met for line in lines if line.met is not None]
    print(f"\n{sum(judged)} of {len(judged)} targets met")


if __name__ == "__main__":
    main()
