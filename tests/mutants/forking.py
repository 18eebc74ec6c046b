"""A plugin for pytest that runs each mutant in a fork of the process that collected the tests.

One run without any mutant says which lines each test reaches and how long it takes. A mutant then
gets the tests that reach its line: first those that found its neighbours, then the cheap ones.
"""

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
from functools import cache, partial
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from coverage import Coverage
from mutmut.mutation.trampoline import set_mutant_under_test

MOST_SECONDS = 8.0
"""of tests for one mutant, by the time that they take without one"""
_LONGEST = 1.5
"""seconds of a test that may be run for each mutant"""
_LIMITS = {signal.ITIMER_PROF: (2.0, 5), signal.ITIMER_REAL: (15.0, 20)}
"""of a test, of the processor's time and of the clock's: seconds, and how often what it takes
without a mutant; a busy machine takes from the second alone"""
_HANGS = (-signal.SIGPROF, -signal.SIGALRM)
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
    mutants: dict[str, list[int]] = json.loads((work / "mutants.json").read_text())
    began = time.monotonic()
    seen = _Seen(work.with_name("mutants-seen.json"), work / "src")
    new = [item for item in session.items if not seen.knows(item)]
    if _wait(_fork(lambda: _look(session, new, work))):
        raise RuntimeError("the tests could not be run without a mutant")
    seen.add(json.loads((work / "seen.json").read_text()))
    print(f"\n{len(new)} tests looked at, in {time.monotonic() - began:.0f} s", flush=True)
    _warm_up()
    gc.collect()
    gc.freeze()  # so that no fork goes through, and copies, what all of them share
    runner = _Runner(session, seen)
    runner.leave_out_unsteady(item.nodeid for item in new)
    seen.keep(session.items)
    for count, results in enumerate(runner.try_all(mutants), 1):
        if count % 50 == 0 or count == len(mutants):  # what is known is kept if it is broken off
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


def _fork(do: Callable[[], int]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of LanceDB, which these tests do not use
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        code = do()
    finally:
        os._exit(code)


def _wait(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _look(session: pytest.Session, items: Iterable[pytest.Item], work: Path) -> int:
    """Run tests once without a mutant: for how long each good one runs, and what it reaches."""
    outcome: Any = session.config.pluginmanager.get_plugin("mutants-outcome")
    set_mutant_under_test("none")
    coverage = Coverage(include=[str(work / "src/evervec/**/*.py")], data_file=None)
    coverage.start()
    seconds: dict[str, float] = {}
    for item in items:
        outcome.failed = ""
        coverage.switch_context(item.nodeid)
        began = time.monotonic()
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        if not outcome.failed:
            seconds[item.nodeid] = time.monotonic() - began
    coverage.stop()
    data = coverage.get_data()
    found: dict[str, Any] = {
        t: {"seconds": s, "lines": defaultdict(list)} for t, s in seconds.items()
    }
    for file in data.measured_files():
        for line, tests in data.contexts_by_lineno(file).items():
            for test in found.keys() & set(tests):
                found[test]["lines"][_module(file)].append(line)
    (work / "seen.json").write_text(json.dumps(found))
    return 0


class _Seen:
    """What is known of the tests: how long each takes, and which lines it reaches. It is kept for
    the next run, for as long as neither the library nor the file of the test changes."""

    def __init__(self, path: Path, source: Path) -> None:
        self._path = path
        self._source = _digest(*sorted(file for file in source.rglob("*") if file.suffix != ".pyc"))
        self._files: dict[str, str] = {}
        self._tests: dict[str, Any] = {}
        self._reaching: dict[tuple[str, int], list[str]] = defaultdict(list)
        self.seconds: dict[str, float] = {}
        kept = json.loads(path.read_text()) if path.exists() else {}
        if kept.get("source") == self._source:
            self._files = kept["files"]
            self.add({t: told for t, told in kept["tests"].items() if self._is_kept(_file(t))})

    def _is_kept(self, file: str) -> bool:
        return self._files.get(file) == _digest(Path(file))

    def knows(self, item: pytest.Item) -> bool:
        return self._is_kept(_file(item.nodeid))

    def add(self, tests: dict[str, Any]) -> None:
        self._tests |= tests
        for test, told in tests.items():
            self.seconds[test] = told["seconds"]
            for module, lines in told["lines"].items():
                for line in lines:
                    self._reaching[module, line].append(test)

    def keep(self, items: Iterable[pytest.Item]) -> None:
        """Of those that are steady."""
        files = {file: _digest(Path(file)) for file in {_file(item.nodeid) for item in items}}
        steady = {test: self._tests[test] for test in self.seconds}
        known = {"source": self._source, "files": self._files | files, "tests": steady}
        self._path.write_text(json.dumps(known))

    def choose(self, module: str, lines: Iterable[int]) -> list[str]:
        """The tests that reach these lines, each on one pair of engines."""
        tests = {test for line in lines for test in self._reaching.get((module, line), ())}
        quick = [test for test in tests if self.seconds.get(test, _LONGEST) < _LONGEST]
        return self._spread(_one_pair(sorted(quick), module))

    def _spread(self, tests: Iterable[str]) -> list[str]:
        """First those of units, which are about less. Their files take turns, by the time that
        their tests take, the quickest of each first; then the others."""
        taken: Counter[str] = Counter()
        places = []
        for test in sorted(tests, key=lambda test: self.seconds[test]):
            taken[_file(test)] += self.seconds[test]  # type: ignore[assignment]
            places.append(("/unit/" not in test, taken[_file(test)], test))
        return [test for _, _, test in sorted(places)]

    def affordable(self, tests: Iterable[str]) -> list[str]:
        taken, left = [], MOST_SECONDS
        for test in tests:
            left -= self.seconds[test]
            if left < 0:
                break
            taken.append(test)
        return taken


def _module(file: str) -> str:
    """A module of the library, as `tool` names it."""
    return ".".join(Path(file).with_suffix("").parts[-2:])


def _one_pair(tests: Iterable[str], module: str) -> list[str]:
    order = _PAIRS[::-1] if module == "worker.index_writer" else _PAIRS
    best: dict[str, str] = {}
    for test in sorted(tests, key=lambda t: order.index(m[0]) if (m := _PAIR.search(t)) else 0):
        best.setdefault(_PAIR.sub("", test), test)
    return list(best.values())


class _Runner:
    """Tries mutants, each in a fork, and learns from each which test to run first."""

    def __init__(self, session: pytest.Session, seen: _Seen) -> None:
        self._session = session
        self._seen = seen
        self._items = {item.nodeid: item for item in session.items}
        self._finders: dict[str, Counter[str]] = defaultdict(Counter)
        self._failed = Path(os.environ["MUTANTS_WORK"]) / "failed"
        self._failed.mkdir(exist_ok=True)

    def leave_out_unsteady(self, tests: Iterable[str]) -> None:
        """Those that fail without a mutant, in another order and in the time that they would get,
        tell nothing."""
        left = sorted(t for t in tests if self._seen.seconds.get(t, _LONGEST) < _LONGEST)
        while left and (code := _wait(_fork(partial(self._try, "none", left)))):
            test = (self._failed / "none").read_text()
            print(f"without a mutant it {'hangs' if code in _HANGS else 'fails'}: {test}")
            del self._seen.seconds[test]
            left = left[left.index(test) + 1 :]

    def try_all(self, mutants: dict[str, list[int]]) -> Iterator[dict[str, str]]:
        """What became of the mutants, after each of them: the test that found it, or `survived`."""
        results: dict[str, str] = {}
        running: dict[int, str] = {}
        waiting = list(mutants)
        Random(7).shuffle(waiting)  # so that a part of them tells of all
        while waiting or running:
            while waiting and len(running) < int(os.environ["MUTANTS_JOBS"]):
                name = waiting.pop()
                tests = self._tests_for(name, mutants[name])
                running[_fork(partial(self._try, name, tests))] = name
            pid, status = os.wait()
            name = running.pop(pid)
            results[name] = self._found(name, os.waitstatus_to_exitcode(status))
            yield results

    def _tests_for(self, name: str, lines: Iterable[int]) -> list[str]:
        reaching = self._seen.choose(".".join(name.split(".")[1:3]), lines)
        tests = [test for test in reaching if test in self._items]
        finders = self._finders[_function(name)]
        tests.sort(key=lambda test: -finders[test])
        return self._seen.affordable(tests)

    def _found(self, name: str, code: int) -> str:
        if not code:
            return "survived"
        finder = (self._failed / name).read_text()  # missing only if what tries it is broken
        self._finders[_function(name)][finder] += 1
        return f"{finder} hangs" if code in _HANGS else finder

    def _try(self, name: str, tests: Sequence[str]) -> int:
        """Run tests until one fails. One that hangs ends the process, even outside of Python."""
        outcome: Any = self._session.config.pluginmanager.get_plugin("mutants-outcome")
        path = self._failed / name
        set_mutant_under_test(name)
        for number in (signal.SIGPROF, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        items = [self._items[test] for test in tests]
        for item, following in zip_longest(items, items[1:]):
            path.write_text(item.nodeid)
            for timer, (least, times) in _LIMITS.items():
                signal.setitimer(timer, least + times * self._seen.seconds[item.nodeid])
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if outcome.failed:
                return 1
        return 0


def _function(name: str) -> str:
    return name.partition("__mutmut_")[0]


def _file(test: str) -> str:
    return test.partition("::")[0]


@cache
def _digest(*files: Path) -> str:
    whole = blake2b(digest_size=16)
    for file in files:
        if file.is_file():
            whole.update(file.read_bytes())
    return whole.hexdigest()
