"""Mutation testing of the modules that decide what becomes of a record.

mutmut makes the mutants: each function is copied once for every small change, and a switch in the
process says which copy is called. It would start pytest for each of them, which takes seconds. Here
pytest collects its tests once and forks for each mutant (`forking`), which takes a tenth of that.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutants.patches import ROOT, copy_source

TESTS = {
    "queue.queue": "unit/test_queue conformance/test_bad_input unit/test_pipeline unit/test_housekeeping "
    "unit/test_attempts "
    "conformance/test_claim conformance/test_fail_release_renew conformance/test_care "
    "conformance/test_finish conformance/test_enqueue conformance/test_recover "
    "conformance/test_stats conformance/test_work_by_hand conformance/test_serving "
    "conformance/test_tenants conformance/test_box conformance/test_save providers/test_spending "
    "conformance/test_typed_records conformance/test_timeline conformance/test_ways",
    "queue.transitions": "unit/test_transitions unit/test_debts conformance/test_owing_jobs "
    "conformance/test_recover conformance/test_finish conformance/test_fail_release_renew",
    "worker.served": "unit/test_served_versions unit/test_versions_that_wait unit/test_backfill "
    "unit/test_verify unit/test_batch_outcomes faults/test_unreadable_jobs conformance/test_enqueue "
    "conformance/test_migrate "
    "conformance/test_own_vectors conformance/test_ways",
    "worker.batch": "unit/test_batch_sizes unit/test_batch_outcomes unit/test_progress "
    "unit/test_pipeline conformance/test_finish conformance/test_box providers/test_spending "
    "providers/test_vector_cache "
    "conformance/test_timeline conformance/test_own_vectors conformance/test_traces",
    "worker.pipeline": "unit/test_served_versions unit/test_versions_that_wait unit/test_batch_sizes "
    "unit/test_batch_outcomes unit/test_pipeline unit/test_progress unit/test_attempts "
    "unit/test_verify unit/test_index_writer faults/test_unreadable_jobs "
    "conformance/test_enqueue conformance/test_box conformance/test_quotas conformance/test_finish "
    "conformance/test_traces conformance/test_migrate conformance/test_work_by_hand "
    "conformance/test_attached_tables conformance/test_fairness "
    "providers/test_spending providers/test_vector_cache providers/test_budget "
    "conformance/test_own_vectors conformance/test_timeline",
    "worker.index_writer": "unit/test_index_writer conformance/test_fences "
    "conformance/test_changes_during_a_write conformance/test_owing_jobs conformance/test_finish "
    "conformance/test_dropped_versions",
    "verify.verify": "unit/test_verify conformance/test_verify conformance/test_verify_beside_work "
    "conformance/test_sabotage conformance/test_tenants conformance/test_delete "
    "conformance/test_attached_tables",
    "verify.diff": "unit/test_comparing unit/test_verify conformance/test_verify",
    "records.drafts": "unit/test_exact_bounds unit/test_drafts conformance/test_bad_input unit/test_kinds "
    "conformance/test_selection conformance/test_delete_version conformance/test_own_vectors",
    "records.kinds": "unit/test_kinds unit/test_backfill unit/test_bounds "
    "conformance/test_typed_records unit/test_frames",
    "model.bounds": "unit/test_exact_bounds",
    "records.writer": "unit/test_writing unit/test_drafts conformance/test_bad_input conformance/test_save "
    "conformance/test_quotas conformance/test_box conformance/test_transaction "
    "conformance/test_records_listing conformance/test_own_vectors conformance/test_delete_version "
    "conformance/test_ways conformance/test_attached_tables",
    "model.filters": "unit/test_exact_bounds unit/test_filters",
}
"""by module, the files of tests that are about it"""
MODULES = tuple(TESTS)
WORK = ROOT / "build" / "mutants"
FOUND = ROOT / "build" / "mutants.json"
"""what became of each mutant, for `--again`"""
LEAST = 90.0
"""the score, in per cent of all mutants, below which it fails"""
SURVIVORS = Path(__file__).parent / "survivors.md"
_NOT_ON = ("postgres", "pgvector", "duckdb", "lancedb", "edge", "sqlite-qdrant", "openai", "ollama")
_LEFT_OUT = ("hundred_thousand", "ten_megabytes")
"""they take long"""
_TIMING = re.compile(r"^    @STAGES\.timing\(.*\)\n", re.MULTILINE)
"""mutmut leaves decorated functions alone, and this one only measures"""
_MANGLED = re.compile(r"__mutmut_(?:orig|\d+)")


@dataclass(frozen=True)
class Mutant:
    """One small change of a function."""

    name: str
    """how mutmut switches it on"""
    function: str
    """with its module"""
    change: str
    """in one line: the code as it is, and what it becomes"""
    lines: tuple[int, ...]
    """of the copy of the library: the statement that it changes, as it is without the change"""

    @property
    def module(self) -> str:
        return ".".join(self.function.split(".")[:2])


def run_tool(names: Sequence[str], jobs: int, *, again: bool = False) -> int:
    """Make and try the mutants of some modules; 1 if too many survive. `again`: try only what was
    not tried yet, or survived the last time and is not known to be harmless."""
    before: dict[str, str] = {}
    if again and FOUND.exists():
        before = json.loads(FOUND.read_text())
    there = [m for m in names or MODULES if _path(ROOT, m).exists()]
    if unknown := set(names) - set(there):
        print(f"there is no module {', '.join(sorted(unknown))}; there are {', '.join(MODULES)}")
        return 2
    began = time.monotonic()
    mutants = make_mutants(there)
    labels = _labels(mutants)
    harmless = known_survivors()
    left = [
        m
        for m in mutants
        if (end := before.get(labels[m.name])) is None
        or (end == "survived" and (m.function, m.change) not in harmless)
    ]
    print(f"{len(mutants)} mutants of {len(there)} modules, {len(left)} to try", flush=True)
    (WORK / "mutants.json").write_text(json.dumps({m.name: m.lines for m in left}))
    done = not left or _try_all(there, jobs)
    results = json.loads((WORK / "results.json").read_text()) if left else {}
    found = before | {labels[name]: end for name, end in results.items()}
    FOUND.write_text(json.dumps(found, indent=1))
    score = _report(mutants, {m.name: found.get(labels[m.name]) for m in mutants})
    print(f"in {time.monotonic() - began:.0f} s")
    return (0 if score >= LEAST else 1) if done else 2


def _path(root: Path, module: str) -> Path:
    return root / "src/evervec" / f"{module.replace('.', '/')}.py"


def make_mutants(modules: Sequence[str]) -> list[Mutant]:
    """Write a copy of the library with all mutants in it."""
    from mutmut.mutation.file_mutation import mutate_file_contents

    _leave_prose_alone()
    subprocess.run(["rm", "-rf", str(WORK)], check=True)
    WORK.mkdir(parents=True)
    copy_source(WORK)
    mutants: list[Mutant] = []
    for module in modules:
        path = _path(WORK, module)
        source = _TIMING.sub("", path.read_text())
        made = mutate_file_contents(path.name, source, None, _reports(source))
        path.write_text(made.code)
        code, spans = made.code.splitlines(), made.line_span_by_function_name
        statements = _statements(made.code)
        for name in made.mutant_names:
            old, new = spans[_function(name) + "__mutmut_orig"], spans[name]
            before, after = code[old.start - 1 : old.end], code[new.start - 1 : new.end]
            changed = _changed_lines(before, after, old.start)
            lines = {
                n for line in changed for n in statements.get(line, range(old.start, old.end + 1))
            }
            mutants.append(
                Mutant(
                    f"evervec.{module}.{name}",
                    f"{module}.{_readable(name)}",
                    _change(before, after),
                    tuple(sorted(lines)),
                )
            )
    return mutants


def _labels(mutants: Iterable[Mutant]) -> dict[str, str]:
    """By the name of a mutant how it is known when the code around it has changed."""
    seen: Counter[str] = Counter()
    labels = {}
    for mutant in mutants:
        label = f"{mutant.function}: {mutant.change}"
        seen[label] += 1
        labels[mutant.name] = f"{label} #{seen[label]}"
    return labels


def _statements(code: str) -> dict[int, range]:
    """By line the lines of the innermost statement that it is of, without what it has inside."""
    found: dict[int, range] = {}
    for node in ast.walk(ast.parse(code)):  # the outer ones come first
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef | ast.ClassDef):
            body = getattr(node, "body", None)
            end = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
            found |= dict.fromkeys(range(node.lineno, end + 1), range(node.lineno, end + 1))
    return found


def _changed_lines(before: Sequence[str], after: Sequence[str], start: int) -> set[int]:
    old, new = (_MANGLED.sub("", "\n".join(lines)).split("\n") for lines in (before, after))
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return {
        start + line
        for tag, first, last, _, _ in blocks
        if tag != "equal"
        for line in range(first, max(last, first + 1))
    }


def _reports(source: str) -> set[int]:
    """Where statements begin that only write to the log or count: they are left alone too."""
    calls = (
        node.value.func
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    )
    return {
        call.lineno
        for call in calls
        if isinstance(call, ast.Attribute)
        and isinstance(call.value, ast.Name)
        and (call.value.id == "log" or call.value.id.isupper())
    }


def _leave_prose_alone() -> None:
    """Change no text with blanks in it: that is what people read, and no behaviour."""
    from mutmut.mutation import mutators

    def operator_string(node: Any) -> Iterator[Any]:
        if " " not in getattr(node, "value", ""):
            yield from mutators.operator_string(node)

    mutators.mutation_operators[:] = [  # type: ignore[index]
        (kind, operator_string if operator is mutators.operator_string else operator)
        for kind, operator in mutators.mutation_operators
    ]


def _change(old: Sequence[str], new: Sequence[str]) -> str:
    """What a mutant changes, in one line."""
    before, after = ([_MANGLED.sub("", line) for line in lines] for lines in (old, new))
    changed = [
        line
        for line in difflib.unified_diff(before, after, lineterm="", n=0)
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    gone = " ".join(line[1:].strip() for line in changed if line[0] == "-")
    come = " ".join(line[1:].strip() for line in changed if line[0] == "+")
    return f"{gone} -> {come}"


def _try_all(modules: Sequence[str], jobs: int) -> bool:
    unwanted = " and ".join(f"not {word}" for word in (*_NOT_ON, *_LEFT_OUT))
    files = sorted({f"tests/{file}.py" for module in modules for file in TESTS[module].split()})
    path = os.pathsep.join(map(str, (WORK / "src", ROOT / "tests")))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "mutants.forking", "-q", "-n", "0", "-s", "--tb=no",
         "--assert=plain",
         "-p", "no:cacheprovider", "-k", unwanted, *files],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path, "MUTANTS_WORK": str(WORK), "MUTANTS_JOBS": str(jobs)},
        check=False,
    )  # fmt: skip
    return done.returncode == 0


def _report(mutants: Sequence[Mutant], ends: Mapping[str, str | None]) -> float:
    """Print the score of each module, and of all, which it returns; name what survived and is not
    known. What was not tried, because a run was broken off, counts for nothing."""
    harmless = known_survivors()
    made, killed = Counter[str](), Counter[str]()
    new = []
    for mutant in mutants:
        end = ends[mutant.name]
        if end is None:
            continue
        made[mutant.module] += 1
        if end != "survived":
            killed[mutant.module] += 1
        elif (mutant.function, mutant.change) not in harmless:
            new.append(f"{mutant.function}: {mutant.change}")
    print(f"\n{'module':20} {'mutants':>7} {'killed':>7} {'survived':>8} {'score':>7}")
    for module in sorted(made):
        print(_row(module, made[module], killed[module]))
    print(_row("all", made.total(), killed.total()))
    if untried := len(mutants) - made.total():
        print(f"{untried} were not tried")
    (WORK / "survivors.txt").write_text("\n".join(sorted(new)) + "\n")
    if new:
        print(f"{len(new)} survivors are not in {SURVIVORS.name}: see {WORK / 'survivors.txt'}")
    return 100 * killed.total() / (made.total() or 1)


def _row(name: str, made: int, killed: int) -> str:
    return f"{name:20} {made:7} {killed:7} {made - killed:8} {100 * killed / (made or 1):6.1f}%"


def _function(name: str) -> str:
    return name.partition("__mutmut_")[0]


def _readable(name: str) -> str:
    return _function(name).removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")


def known_survivors() -> set[tuple[str, str]]:
    """Those of `survivors.md`: function and change."""
    rows = re.findall(r"^\| `(\S+)` \| `` (.+?) `` \|", SURVIVORS.read_text(), re.MULTILINE)
    return {(function, change) for function, change in rows}
