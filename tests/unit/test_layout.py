"""The layout of the code: what the root has, how long a file may be, and what modules and classes are called."""

import ast
import re
from pathlib import Path

import evervec

ROOT = Path(evervec.__file__).parent
FILES = sorted(file for ending in ("py", "sql") for file in ROOT.rglob(f"*.{ending}"))
NOUNS = {
    "chunking", "embedding", "finding", "hashing", "housekeeping", "mapping", "opening", "padding", "pending",
    "ranking", "setting", "spending",
}  # fmt: skip
"""words that end as gerunds do, and name a thing here"""


def _names() -> set[str]:
    """Modules, folders, and classes that are called as such."""
    found = set[str]()
    for file in FILES:
        if file.suffix == ".py":
            found |= {file.stem, file.parent.name}
            found |= set(re.findall(r"^class ([A-Z]\w+)", file.read_text("utf-8"), re.MULTILINE))
    return found


def test_the_root_has_six_modules() -> None:
    assert len(list(ROOT.glob("*.py"))) == 6


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {str(f.relative_to(ROOT)): len(f.read_text("utf-8").splitlines()) for f in FILES}
    assert len(lengths) > 500
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_modules_and_classes_are_not_named_by_gerunds() -> None:
    names = _names()
    assert {"WordRanking", "housekeeping"} < names
    gerunds = {
        name
        for name in names
        if (last := re.findall("[A-Z]?[a-z]+", name)[-1:]) and last[0].endswith("ing")
        and last[0].lower() not in NOUNS
    }  # fmt: skip
    assert gerunds == {"ChunksMissing"}  # an error that is named for what happened


def test_each_folder_says_what_it_is() -> None:
    silent = [
        folder.name
        for folder in ROOT.iterdir()
        if (init := folder / "__init__.py").is_file()
        and not ast.get_docstring(ast.parse(init.read_text("utf-8")))
    ]
    assert silent == []


def test_values_of_rows_have_names() -> None:
    """A reordered select fails, instead of reading one column as another."""
    by_place = re.compile(r"\brow\[\d+\]")
    found = [file.name for file in FILES if by_place.search(file.read_text("utf-8"))]
    assert found == []
