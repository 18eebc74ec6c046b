"""Random faults on fleets of real processes; then a judge that trusts nobody.

    make chaos ARGS="--minutes 20"
    make chaos ARGS="--minutes 5 --pair sqlite+lancedb --seed 42"

Ctrl-C ends the faults; what was written until then is judged. A second one ends everything.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import threading
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType

from chaos import report
from chaos.judging import keep
from chaos.pairs import PAIRS, Pair
from chaos.storm import Storm
from support import quick_disk
from support.processes import children

_LAP = 60.0


def main(args: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=4.0, help="for all pairs together")
    parser.add_argument("--pair", action="append", choices=PAIRS, help="only this one; repeat it")
    parser.add_argument("--seed", type=int, help="repeats the choices of an earlier run")
    parser.add_argument("--records", type=int, default=60, help="of each application and tenant")
    parser.add_argument("--tell", action="store_true", help="each fault when it was injected")
    parser.add_argument("--keep", action="store_true", help="journals and logs of good runs too")
    parser.add_argument("--write", type=Path, help="a page to put the tables into")
    given = parser.parse_args(args)
    quick_disk.use()
    seed = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    pairs = given.pair or list(PAIRS)
    print(f"seed {seed}", flush=True)
    stop = _stopping()
    storms: list[Storm] = []
    good = True
    for name in pairs:
        if stop.is_set():
            break
        try:
            good &= _weather(name, seed, 60 * given.minutes / len(pairs), given, stop, storms)
        except KeyboardInterrupt:
            return 130
    print("\n".join(["", *report.verdicts(storms), "", f"seed {seed}"]), flush=True)
    if given.write:
        when = datetime.now(UTC).date().isoformat()
        how = f'make chaos ARGS="--minutes {given.minutes:g} --seed {seed}"'
        report.write(given.write, report.page(storms, when, how))
    return 0 if good else 1


def _stopping() -> threading.Event:
    """Set by Ctrl-C or SIGTERM."""
    stop = threading.Event()

    def asked(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        print("ending: what was written is judged; once more ends at once", flush=True)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, asked)
    return stop


def _weather(
    name: str,
    seed: int,
    seconds: float,
    given: argparse.Namespace,
    stop: threading.Event,
    storms: list[Storm],
) -> bool:
    """Laps on one pair; whether all is right."""
    folder = Path(tempfile.mkdtemp(prefix=f"evervec-chaos-{seed}-{name}-"))
    laps = max(1, round(seconds / _LAP))
    pair = Pair(name, folder)
    good = False
    try:
        with children(folder) as start:
            tell = partial(print, flush=True) if given.tell else None
            storm = Storm(pair, start, seed, records=given.records, tell=tell)
            storms.append(storm)
            storm.begin()
            for _ in range(laps):
                storm.lap(seconds / laps, stop)
                if not _is_good(storm) or stop.is_set():
                    break
            good = _is_good(storm)
        print("\n".join(["", f"{name}:", *report.faults_of(storm)]), flush=True)
        if given.keep or not good:
            _tell(storm)
    finally:
        pair.close()
        if good and not given.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return good


def _is_good(storm: Storm) -> bool:
    verdict = storm.verdict
    if not (verdict.acknowledged and storm.injected):
        raise AssertionError("nothing was written, or no fault came: this run says nothing")
    return not verdict.problems and verdict.agree and not storm.gave_up


def _tell(storm: Storm) -> None:
    verdict = storm.verdict
    keep(storm.pair, verdict, [*storm.told, *storm.gave_up, *storm.dead])
    print(f"oracle: {verdict.oracle}; verify: {verdict.verify}")
    for problem in verdict.problems[:20]:
        print(f"- {problem}")
    for log in storm.gave_up:
        print(f"- a worker ended by itself: {log.strip().splitlines()[-1:]}")
    print(f"histories of the records: {storm.pair.folder}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
