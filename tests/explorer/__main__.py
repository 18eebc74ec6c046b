"""`python -m explorer`: try schedules for a while; 1 when one broke a promise."""

import argparse
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from multiprocessing.pool import AsyncResult, Pool
from pathlib import Path
from typing import Any

from explorer.engines import ENGINES
from explorer.exploring import ENGINES_SHARE, SHRINKING, SLICES, Explorer, Position, Tally
from support import postgres, quick_disk

_AT_ONCE = 60.0
"""seconds for which one process goes on before another takes its place: engines keep memory"""
_REST = 240.0
"""seconds for which it may go on after that, to come to the end of a small scope"""
_clock = time.monotonic


def main() -> int:
    args = _arguments()
    run = _Run.load(args)
    print(
        f"exploring for {args.minutes:g} min in {run.processes} processes, seed {run.seed}",
        flush=True,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    quick_disk.use()
    postgres.make_folder()
    if "postgres" in args.engines:
        postgres.server_url()  # one server for all processes
    try:
        _go_on(run, args)
    except KeyboardInterrupt:
        print("stopped: what the processes did since the last line is not counted")
    finally:
        postgres.remove_folder()
    _tell(run)
    print(f"{_processor_seconds():.1f} s of processor time")
    return 1 if run.tally.failures else 0


def _go_on(run: "_Run", args: argparse.Namespace) -> None:
    began = _clock()
    with (
        tempfile.TemporaryDirectory(prefix="explorer-") as folder,
        multiprocessing.get_context("fork").Pool(run.processes, _use, (folder,), 1) as pool,
    ):
        for _ in _shares(pool, run, args, began + 60 * args.minutes):
            run.seconds += _clock() - began
            began = _clock()
            run.keep(args.state)
            print(f"{run.seconds:,.0f} s: {_counts(run.tally)}", flush=True)


@dataclass
class _Run:
    """All that was done, and where each process is."""

    seed: int
    processes: int
    positions: list[Position]
    tally: Tally = field(default_factory=Tally)
    seconds: float = 0.0

    @classmethod
    def load(cls, args: argparse.Namespace) -> "_Run":
        if args.state is not None and args.state.exists():
            kept: dict[str, Any] = json.loads(args.state.read_text())
            positions = [Position(**made) for made in kept["positions"]]
            for position in positions:
                position.on_engine = Counter(position.on_engine)
            run = cls(kept["seed"], len(positions), positions, seconds=kept["seconds"])
            tally = Tally(**kept["tally"])
            tally.on_engine, tally.of_sort = Counter(tally.on_engine), Counter(tally.of_sort)
            run.tally.add(tally)
            return run
        seed = args.seed if args.seed is not None else random.randrange(10**6)
        return cls(seed, args.processes, [Position() for _ in range(args.processes)])

    def keep(self, file: Path | None) -> None:
        if file is not None:
            made = file.with_suffix(".new")
            made.write_text(json.dumps(self, default=vars, indent=1))
            made.replace(file)


def _use(folder: str) -> None:
    """Files of a process go there: it may be ended before it can remove them."""
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends the others
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _shares(pool: Pool, run: _Run, args: argparse.Namespace, end: float) -> Iterator[None]:
    """Let processes go on, one after the other for each place, and add up what they did."""
    most = 1 if args.stop_at_first else args.failures
    under_way: dict[int, AsyncResult[tuple[Tally, Position]]] = {}
    idle = list(range(run.processes))
    while True:
        is_over = len(run.tally.failures) >= most or run.tally.tried >= args.schedules
        while idle and not is_over and _clock() < end:
            number = idle.pop(0)
            share = (args, run.seed, number, run.processes, run.positions[number], end - _clock())
            under_way[number] = pool.apply_async(_explore, (share,))
        if not under_way or (run.tally.failures and args.stop_at_first):
            return
        for number, result in list(under_way.items()):
            result.wait(0.1)
            if result.ready():
                tally, run.positions[number] = result.get()
                run.tally.add(tally)
                del under_way[number]
                idle.append(number)
                yield


def _explore(
    share: tuple[argparse.Namespace, int, int, int, Position, float],
) -> tuple[Tally, Position]:
    args, seed, number, of, position, seconds = share
    most = 1 if args.stop_at_first else args.failures
    explorer = Explorer(
        seed, number, of, most, args.changes, engines=args.engines, position=position,
        engines_share=args.share, shrinks=args.shrink, slices=args.slices,
    )  # fmt: skip
    at_once = min(_AT_ONCE, seconds)
    explorer.explore(at_once, args.schedules, min(_REST, seconds - at_once))
    return explorer.tally, explorer.position


def _counts(tally: Tally) -> str:
    return (
        f"{tally.tried:,} schedules: {tally.ended:,} ran to their end ({tally.by_chance:,} by "
        f"chance), {tally.cut:,} came to a state that was explored before, and of "
        f"{tally.foreseen:,} that was known without running them; every schedule of {tally.whole} "
        f"small scopes, a part of {tally.left}; {tally.megabytes:,} MB at most; "
        f"{len(tally.failures)} failures"
    )


def _processor_seconds() -> float:
    """Of this process and of those that it started, but not of a database server."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in used)


def _tell(run: _Run) -> None:
    tally, seconds = run.tally, max(run.seconds, 0.001)
    for failure in tally.failures:
        print(f"\n{failure}")
    for sort, count in tally.of_sort.most_common():
        print(f"{sort}: {count:,}")
    for engine, count in sorted(tally.on_engine.items()):
        rate = count / max(tally.seconds[engine], 0.001)
        print(f"{engine}: {count:,} schedules, {rate:.1f} a second in each process")
    print(
        f"seed {run.seed}, {seconds:.0f} s, {tally.tried / seconds:.0f} schedules a second, "
        f"{(tally.ended + tally.cut) / seconds:.0f} of them run: {_counts(tally)}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="explorer", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default 1)")
    parser.add_argument("--schedules", type=float, default=inf, help="end after so many")
    parser.add_argument("--seed", type=int, help="of what is done by chance; default: a new one")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--changes", type=int, default=3, help="of a small scope, at most")
    parser.add_argument("--failures", type=int, default=3, help="for the run to end after")
    parser.add_argument("--stop-at-first", action="store_true", help="end with the first failure")
    parser.add_argument(
        "--state", type=Path, help="a file to keep the counts in, and to go on from if it is there"
    )
    parser.add_argument(
        "--engine", choices=(*ENGINES, "all"), default="all", help="what to run on (default all)"
    )
    parser.add_argument(
        "--shrink", type=float, default=SHRINKING, metavar="SECONDS",
        help=f"to make a schedule that failed shorter (default {SHRINKING:g})",
    )  # fmt: skip
    parser.add_argument(
        "--slices", type=float, nargs=2, default=SLICES, metavar="SECONDS",
        help="for small scopes and for large ones, in turns (default {:g} and {:g})".format(*SLICES),
    )  # fmt: skip
    parser.add_argument(
        "--share", type=float, default=ENGINES_SHARE, metavar="PART",
        help=f"of the time for real engines, at most (default {ENGINES_SHARE:g})",
    )  # fmt: skip
    args = parser.parse_args()
    args.engines = ENGINES if args.engine == "all" else (args.engine,)
    return args


if __name__ == "__main__":
    sys.exit(main())
