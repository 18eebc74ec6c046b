"""A process that works off one store, then prints how many it did and its peak in MB."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import evervec
from benchmarks.made_up import NoCost


def main(path: str, dimensions: str) -> None:
    with evervec.open(path, embedder=NoCost(dimensions=int(dimensions))) as ev:
        print(ev.process_all().succeeded, peak())


def peak() -> float:
    """The most memory that this process had. Linux has it for the program alone; what
    `getrusage` says there counts the process that started it, too."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1 << 20 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main(*sys.argv[1:])
