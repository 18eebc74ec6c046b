"""The table of sizes and costs, from the results of `make bench ARGS=growth`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docsite.reference.markdown import table

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "growth"
_OWN = {
    "sqlite": "SQLite",
    "sqlite+lancedb": "SQLite, LanceDB",
    "sqlite+qdrant": "SQLite, Qdrant embedded",
    "postgres": "PostgreSQL, pgvector",
    "duckdb": "DuckDB",
}


def made_table() -> str:
    rows = []
    for name, shown in _OWN.items():
        found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
        rows += [_row(shown, each) for _, each in sorted(found.items(), key=lambda i: int(i[0]))]
    heads = (
        "store and index",
        "records",
        "disk",
        "memory",
        "per record",
        "semantic",
        "text",
        "hybrid",
    )
    return table(heads, rows)


def _row(shown: str, found: dict[str, Any]) -> tuple[str, ...]:
    searches = (f"{found[f'{mode}_cpu_ms']:.1f} ms" for mode in ("semantic", "text", "hybrid"))
    return (
        shown,
        f"{found['size']:,}",
        f"{found['disk_mb']:.0f} MB",
        f"{found['memory_mb']:.0f} MB",
        f"{found['record_cpu_us']:.0f} µs",
        *searches,
    )
