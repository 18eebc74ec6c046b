"""That the planted defects can be planted: run for real by `make mutants`."""

import ast
from functools import cache
from pathlib import Path

import pytest

from mutants import tool
from mutants.patches import FOLDER, ROOT, BadPatch, all_patches, copy_files, read_patch
from mutants.running import try_patch

PATCHES = all_patches()


def test_there_are_many_of_them_and_no_two_are_the_same() -> None:
    assert len(PATCHES) >= 60
    diffs = [patch.path.read_text().partition("\n\n")[2] for patch in PATCHES]
    whole = [(diff, patch.tests, patch.select) for diff, patch in zip(diffs, PATCHES, strict=True)]
    assert len(set(whole)) == len(whole)


def test_each_applies_to_the_library_as_it_is_and_compiles(tmp_path: Path) -> None:
    wrong = []
    for patch in PATCHES:
        folder = tmp_path / patch.name
        copy_files(patch.files, folder)
        try:
            patch.apply(folder)
        except BadPatch as error:
            wrong.append(str(error))
            continue
        for file in patch.files:
            assert (folder / file).read_bytes() != (ROOT / file).read_bytes(), patch.name
            if file.endswith(".py"):
                compile((folder / file).read_text(), file, "exec")
    assert not wrong, "\n".join(wrong)


def test_the_tests_that_they_name_are_there() -> None:
    named = {test for patch in PATCHES for test in patch.tests}
    assert sorted(test for test in named if not _exists(test)) == []


def _exists(test: str) -> bool:
    file, _, function = test.partition("::")
    return (ROOT / file).exists() and (not function or function.partition("[")[0] in _tests(file))


@cache
def _tests(file: str) -> set[str]:
    body = ast.walk(ast.parse((ROOT / file).read_text()))
    return {part.name for part in body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ("Tests: tests/unit/test_retry.py", "no `Breaks:`"),
        ("Breaks: a promise", "names no `Tests:`"),
        ("Breaks: a promise\nTest: tests/unit/test_retry.py", "header line 'Test: "),
        ("Breaks: a promise\nBreaks: another", "header line 'Breaks: another'"),
        ("Breaks:\nExplorer: yes", "header line 'Breaks:'"),
    ],
)
def test_a_header_that_lacks_something_is_refused(
    tmp_path: Path, header: str, complaint: str
) -> None:
    path = tmp_path / "bad.patch"
    path.write_text(
        f"{header}\n\n--- a/src/evervec/runtime/backoff.py\n+++ b/src/evervec/runtime/backoff.py\n"
    )
    with pytest.raises(BadPatch, match=complaint):
        read_patch(path)


def test_a_defect_is_found_by_its_test() -> None:
    patch = read_patch(FOLDER / "backoff_without_cap.patch")
    found = try_patch(patch, ("tests/unit/test_retry.py",))
    assert found == ("tests/unit/test_retry.py::test_waits_double_until_the_cap", "")


def test_a_survivor_is_known_by_its_function_and_its_change() -> None:
    known = tool.known_survivors()
    rows = [line for line in tool.SURVIVORS.read_text().splitlines() if line.startswith("| `")]
    assert len(known) == len(rows)
    assert all(".".join(f.split(".")[:2]) in tool.MODULES for f, _ in known)
