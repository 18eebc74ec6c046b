"""Metrics as Prometheus reads them, and its own tool to check files."""

import subprocess
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from support.programs import program

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(text: str) -> Samples:
    """By name and labels."""
    return {
        (s.name, frozenset(s.labels.items())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def value(text: str, name: str, **labels: str) -> float:
    """Of one sample; 0 where there is none yet."""
    return samples(text).get((name, frozenset(labels.items())), 0.0)


def names(text: str) -> set[str]:
    """The names that a query may use. What has no samples yet is there by its type."""
    found = {s.name for family in text_string_to_metric_families(text) for s in family.samples}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            found.add(name)
            if kind == "histogram":
                found |= {f"{name}_{part}" for part in ("bucket", "sum", "count")}
    return found


def promtool(*args: str | Path, text: str | None = None) -> None:
    """Prometheus's own verdict."""
    tool = program("promtool", "prometheus", alone=True)
    done = subprocess.run(
        [tool, *map(str, args)], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
