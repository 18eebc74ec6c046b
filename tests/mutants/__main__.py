"""`python -m mutants [name …]`: plant defects one at a time, and say who finds each.

Without names it then runs mutmut over the modules that decide what becomes of a record."""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from mutants.patches import Patch, all_patches
from mutants.running import Verdict, judge, try_patch
from mutants.tool import run_tool


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("name", nargs="*", help="which, by name or pattern; default all")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    parser.add_argument("--list", action="store_true", help="say what each breaks, run nothing")
    parser.add_argument(
        "--explorer", action="store_true", help="let the explorer find those that it must find"
    )
    parser.add_argument(
        "--unpatched", action="store_true", help="only see that the named tests pass by themselves"
    )
    parser.add_argument("--patches", action="store_true", help="without mutmut")
    parser.add_argument(
        "--tool", action="store_true", help="mutmut alone, over all modules or those named"
    )
    parser.add_argument(
        "--again", action="store_true", help="with --tool: only what survived the last time"
    )
    given = parser.parse_args(arguments)
    if given.tool:
        return run_tool(given.name, given.jobs, again=given.again)
    chosen = _chosen(all_patches(), given.name)
    if not chosen:
        parser.error(f"no mutant is named {' or '.join(given.name)}")
    chosen = [p for p in chosen if (p.explorer if given.explorer else p.tests or given.list)]
    if given.list:
        for patch in chosen:
            print(f"{patch.name}: {patch.breaks}")
        return 0
    if given.unpatched:
        return _check_unpatched(chosen)
    ended = _run(chosen, given.jobs, explorer=given.explorer)
    if given.name or given.explorer or given.patches:
        return ended
    return max(ended, run_tool((), given.jobs))


def _chosen(patches: Iterable[Patch], names: Sequence[str]) -> list[Patch]:
    return [p for p in patches if not names or any(fnmatch.fnmatch(p.name, n) for n in names)]


def _run(patches: Sequence[Patch], jobs: int, *, explorer: bool) -> int:
    began = time.monotonic()
    width = max((len(patch.name) for patch in patches), default=0)
    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(judge, patch, explorer=explorer) for patch in patches]
        for ended in as_completed(running):
            verdict = ended.result()
            verdicts.append(verdict)
            print(f"{verdict.patch.name:{width}}  {verdict.seconds:5.1f} s  {verdict}", flush=True)
    missed = sorted((v for v in verdicts if not v.found), key=lambda v: v.patch.name)
    print(
        f"\n{len(verdicts) - len(missed)} of {len(verdicts)} found "
        f"in {time.monotonic() - began:.0f} s"
    )
    for verdict in missed:
        print(f"  {verdict.patch.name}: {verdict}\n    breaks: {verdict.patch.breaks}")
    return 1 if missed else 0


def _check_unpatched(patches: Sequence[Patch]) -> int:
    """See that what finds a defect does not fail without one."""
    wanted = sorted({(patch.tests, patch.select) for patch in patches})
    failed = 0
    for tests, select in wanted:
        finder, error = try_patch(None, tests, select)
        failed += bool(finder or error)
        print(f"{'FAILS' if finder or error else 'passes'}  {' '.join(tests)}  {finder}{error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
