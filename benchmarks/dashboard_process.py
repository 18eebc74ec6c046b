"""`python -m benchmarks.dashboard_process STORE PORT WORKERS`: the service over a large store."""

from __future__ import annotations

import sys

import evervec
from benchmarks.dashboard_store import Picky
from evervec.server.serve import serve


def main(store: str, port: str, workers: str) -> None:
    with evervec.open(store, embedder=Picky()) as ev:
        serve(ev, "127.0.0.1", int(port), int(workers))


if __name__ == "__main__":
    main(*sys.argv[1:])
