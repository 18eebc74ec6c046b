"""One process that drains a queue: `python -m benchmarks.postgres_worker URL`. It says "ready",
waits for a line, and then prints how many jobs it finished."""

from __future__ import annotations

import sys

import evervec


def drain(url: str) -> int:
    with evervec.open(url, embedder="noop") as ev:
        print("ready", flush=True)
        sys.stdin.readline()
        done = 0
        while jobs := ev.queue.claim(500):
            done += sum(ev.queue.finish_many(jobs))
    return done


if __name__ == "__main__":
    print(drain(sys.argv[1]), flush=True)
