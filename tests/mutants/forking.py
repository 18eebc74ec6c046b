"""A plugin for pytest that runs each mutant in a fork of the process that collected the tests."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state

MOST_TESTS = 150
"""for one mutant: those that see the fewest other functions come first"""
_LONGEST = 1.5
"""seconds of a test that may be run for each mutant"""
_PAIRS = ("memory-sqlite", "sqlite-sqlite", "memory-qdrant-memory")
_PAIR = re.compile("|".join(_PAIRS))


class _Outcome:
    """Notes the first test that fails in this process."""

    def __init__(self) -> None:
        self.failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Outcome(), "mutants-outcome")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    work = Path(os.environ["MUTANTS_WORK"])
    mutants: list[str] = json.loads((work / "mutants.json").read_text())
    began = time.monotonic()
    _fork(lambda: _look(session, work / "seen.json"), 1800.0).wait(1800.0)
    seen: dict[str, tuple[float, list[str]]] = json.loads((work / "seen.json").read_text())
    chosen = _choose(seen)
    print(f"\n{len(seen)} tests see {len(chosen)} functions, in {time.monotonic() - began:.0f} s")
    items = {item.nodeid: item for item in session.items}
    _warm_up()
    gc.collect()
    gc.freeze()  # so that no fork goes through, and copies, what all of them share
    longest = max(chosen.values(), key=len)
    if _fork(lambda: _try(session, "none", [items[t] for t in longest]), 1800.0).wait(1800.0):
        raise pytest.UsageError("the tests fail in a fork without any mutant")
    seconds = {test: seconds for test, (seconds, _) in seen.items()}
    for count, results in enumerate(_try_all(session, mutants, chosen, items, seconds), 1):
        if count % 20 == 0 or count == len(mutants):  # what is known is kept if it is broken off
            (work / "results.json").write_text(json.dumps(results, indent=1))
            alive = sum(result == "survived" for result in results.values())
            taken = time.monotonic() - began
            print(f"{count} of {len(mutants)}, {alive} survived, {taken:.0f} s", flush=True)
    return True


def _warm_up() -> None:
    """Do once what each fork would do at its first test: imports, caches, compiled queries."""
    from support.world import KIND, World, work  # which pytest rewrites, so not before its start

    for index in ("sqlite", "qdrant-memory"):
        with TemporaryDirectory() as folder:
            world = World(("memory", index), Path(folder))
            world.ev.add(KIND, "alpha", id="1", metadata={"a": 1})
            work(world.ev)
            assert world.ev.search("alpha", filter={"a": 1})
            assert world.ev.verify().clean
            world.close()


class _Child:
    """A fork at work."""

    def __init__(self, pid: int, seconds: float) -> None:
        self.pid = pid
        self.ends = time.monotonic() + seconds

    def wait(self, seconds: float) -> int | None:
        """How it ended: 0 if nothing failed; None while it works. Past its time it is killed."""
        until = time.monotonic() + seconds
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            now = time.monotonic()
            if now > self.ends:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                return -signal.SIGKILL
            if now > until:
                return None
            time.sleep(0.005)


def _fork(do: Callable[[], int], seconds: float) -> _Child:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of LanceDB, which these tests do not use
        pid = os.fork()
    if pid:
        return _Child(pid, seconds)
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        code = do()
    finally:
        os._exit(code)


def _look(session: pytest.Session, path: Path) -> int:
    """Run all tests once without a mutant; which functions each good one sees, and for how long."""
    outcome: Any = session.config.pluginmanager.get_plugin("mutants-outcome")
    set_mutant_under_test("stats")
    seen: dict[str, tuple[float, list[str]]] = {}
    for item in session.items:
        state()._stats.clear()
        outcome.failed = ""
        began = time.monotonic()
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        if not outcome.failed:
            seen[item.nodeid] = (time.monotonic() - began, sorted(state()._stats))
    path.write_text(json.dumps(seen))
    return 0


def _choose(seen: dict[str, tuple[float, list[str]]]) -> dict[str, list[str]]:
    """For each function the tests that are likely to tell a change of it, the likeliest first:
    each on one pair of engines, and one of each file before the next of any."""
    by_function: dict[str, list[str]] = defaultdict(list)
    for test, (seconds, functions) in seen.items():
        if seconds < _LONGEST:
            for function in functions:
                by_function[function].append(test)
    return {
        function: _spread(
            _one_pair(tests, function), lambda test: len(seen[test][1]) + 200 * seen[test][0]
        )
        for function, tests in by_function.items()
    }


def _one_pair(tests: Iterable[str], function: str) -> list[str]:
    order = _PAIRS
    if "index_writer" in function:
        order = _PAIRS[::-1]
    else:  # slower, and the same to all other functions
        tests = [test for test in tests if "qdrant" not in test]
    best: dict[str, str] = {}
    for test in sorted(tests, key=lambda t: order.index(m[0]) if (m := _PAIR.search(t)) else 0):
        best.setdefault(_PAIR.sub("", test), test)
    return list(best.values())


def _spread(tests: Sequence[str], cost: Callable[[str], float]) -> list[str]:
    rank: Counter[str] = Counter()
    places = []
    for test in sorted(tests, key=cost):
        file = test.partition("::")[0]
        places.append((rank[file], cost(test), test))
        rank[file] += 1
    return [test for _, _, test in sorted(places)][:MOST_TESTS]


def _try_all(
    session: pytest.Session,
    mutants: Iterable[str],
    chosen: dict[str, list[str]],
    items: dict[str, pytest.Item],
    seconds: dict[str, float],
) -> Iterator[dict[str, str]]:
    """What became of the mutants, after each of them: found, timeout or survived."""
    results: dict[str, str] = {}
    running: dict[str, _Child] = {}
    waiting = list(mutants)
    Random(7).shuffle(waiting)  # so that a part of them tells of all
    late: set[str] = set()
    while waiting or running:
        while waiting and len(running) < int(os.environ["MUTANTS_JOBS"]):
            name = waiting.pop()
            tests = chosen.get(name.partition("__mutmut_")[0], [])
            limit = (60 if name in late else 10) + 5 * sum(seconds[test] for test in tests)
            running[name] = _fork(lambda: _try(session, name, [items[t] for t in tests]), limit)  # noqa: B023 - called at once
        for name, child in list(running.items()):
            if (code := child.wait(0.005)) is not None:
                del running[name]
                if code == -signal.SIGKILL and name not in late:  # the machine may have been busy
                    late.add(name)
                    waiting.insert(0, name)
                    continue
                results[name] = {0: "survived", -signal.SIGKILL: "timeout"}.get(code, "found")
                yield results


def _try(session: pytest.Session, name: str, items: Sequence[pytest.Item]) -> int:
    outcome: Any = session.config.pluginmanager.get_plugin("mutants-outcome")
    set_mutant_under_test(name)
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        if outcome.failed:
            (Path(os.environ["MUTANTS_WORK"]) / "failed.txt").write_text(outcome.failed)
            return 1
    return 0
