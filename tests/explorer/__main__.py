"""`python -m explorer`: try schedules for a while; 1 when one broke a promise."""

import argparse
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
from math import inf

from explorer.engines import ENGINES
from explorer.exploring import Explorer, Tally
from support import postgres, quick_disk

_TELL_EVERY = 150.0
"""seconds"""
_clock = time.monotonic


def main() -> int:
    args = _arguments()
    seed = args.seed if args.seed is not None else random.randrange(10**6)
    count = args.processes
    print(f"exploring for {args.minutes:g} min in {count} processes, seed {seed}", flush=True)
    quick_disk.use()
    postgres.make_folder()
    if "postgres" in args.engines:
        postgres.server_url()  # one server for all processes
    began = time.monotonic()
    total = Tally()
    work = [(args, seed, number) for number in range(count)]
    with (
        tempfile.TemporaryDirectory(prefix="explorer-") as folder,
        multiprocessing.get_context("fork").Pool(count, _use, (folder,)) as pool,
    ):
        for tally in pool.imap_unordered(_explore, work):
            total.add(tally)
            if total.failures and args.stop_at_first:
                pool.terminate()
                break
    seconds = time.monotonic() - began
    postgres.remove_folder()
    for failure in total.failures:
        print(f"\n{failure}")
    print(
        f"{total.tried:,} schedules in {seconds:.0f} s, {total.tried / seconds:.0f} a second: "
        f"{total.ended:,} ran to their end ({total.by_chance:,} by chance), {total.cut:,} came to "
        f"a state that was explored before; every schedule of {total.whole} small scopes; "
        f"{len(total.failures)} failures"
    )
    for engine, count in sorted(total.on_engine.items()):
        rate = count / max(total.seconds[engine], 0.001)
        print(f"{engine}: {count:,} schedules, {rate:.1f} a second in each process")
    return 1 if total.failures else 0


def _use(folder: str) -> None:
    """Files of a process go there: it may be ended before it can remove them."""
    tempfile.tempdir = os.environ["TMPDIR"] = folder


def _explore(work: tuple[argparse.Namespace, int, int]) -> Tally:
    args, seed, number = work
    most = 1 if args.stop_at_first else args.failures
    explorer = Explorer(seed, number, args.processes, most, args.changes, engines=args.engines)
    return explorer.explore(60 * args.minutes, args.schedules / args.processes, _Progress(number))


class _Progress:
    """Says now and then how far a process of a long run has come."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._next = _clock() + _TELL_EVERY

    def __call__(self, tally: Tally) -> None:
        if _clock() < self._next:
            return
        self._next = _clock() + _TELL_EVERY
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(
            f"process {self._number}: {tally.tried:,} schedules, {tally.ended:,} to their end, "
            f"{len(tally.failures)} failures, {most:,} MB at most",
            flush=True,
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="explorer", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default 1)")
    parser.add_argument("--schedules", type=float, default=inf, help="end after so many")
    parser.add_argument("--seed", type=int, help="of what is done by chance; default: a new one")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--changes", type=int, default=3, help="of a small scope, at most")
    parser.add_argument("--failures", type=int, default=3, help="for a process to end after")
    parser.add_argument("--stop-at-first", action="store_true", help="end with the first failure")
    parser.add_argument(
        "--engine", choices=(*ENGINES, "all"), default="all", help="what to run on (default all)"
    )
    args = parser.parse_args()
    args.engines = ENGINES if args.engine == "all" else (args.engine,)
    return args


if __name__ == "__main__":
    sys.exit(main())
