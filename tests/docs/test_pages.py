"""What the pages point to is there: files, headings, modules, and the words of the glossary."""

import importlib
import re
from importlib.metadata import metadata
from pathlib import Path

import pytest

from docsite.reference import MAKERS

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
_MODULE = re.compile(r"\b((?:aio|cli|server|client|worker|search|verify|versions|maintenance|records|queue"
                     r"|embedding|tables|chunking|model|telemetry|stores|indexes|embedders|facade)"
                     r"(?:\.[a-z_]+)*)(?:\.([A-Z]\w+)(?:\.([a-z_]+))?)?")  # fmt: skip


def _headings(page: Path) -> set[str]:
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for path, heading in _LINK.findall(page.read_text()):
        target = (page.parent / path) if path else page
        if target.parent.name == "reference" and target.stem in MAKERS:
            continue  # made from the code; the site's own check follows the anchor
        if target.name in ("llms.txt", "llms-full.txt"):
            continue  # made with the site
        assert target.exists(), path
        if heading:
            assert heading in _headings(target), (path, heading)


def test_the_glossary_has_each_term_once_and_a_file_that_uses_it() -> None:
    rows = re.findall(
        r"^\| \*\*(.+?)\*\* \|.*\| *(?:`(.+)`)? *\|$", _page("glossary"), re.MULTILINE
    )
    assert len(rows) >= 30
    terms = [term for term, _ in rows]
    assert len(set(terms)) == len(terms)
    for _, path in rows:
        assert (ROOT / "src/evervec" / path).exists(), path
    unused = [term for term, path in rows if path and term not in _words_of(path)]
    assert unused == []


def _words_of(path: str) -> str:
    """The words of a file of the library, or of the files in a folder."""
    place = ROOT / "src/evervec" / path
    files = [place] if place.is_file() else [*place.rglob("*.py"), *place.rglob("*.sql")]
    text = " ".join(file.read_text() for file in files)
    return re.sub(r"[\s_#-]+", " ", text).lower()


def test_the_architecture_names_what_exists() -> None:
    named = [
        found for found in _MODULE.findall(_page("architecture")) if found[1] or found[0].count(".")
    ]
    assert len(named) > 20
    for path, kind, method in named:
        try:
            module = importlib.import_module(f"evervec.{path}")
        except ModuleNotFoundError:
            name, _, attribute = path.rpartition(".")
            assert hasattr(importlib.import_module(f"evervec.{name}"), attribute), path
            continue
        if kind:
            assert hasattr(module, kind), (path, kind)
        if method:
            assert hasattr(getattr(module, kind), method), (path, kind, method)


def test_the_architecture_names_files_that_exist() -> None:
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", _page("architecture"))
    assert len(named) > 20
    places = (ROOT, ROOT / "src/evervec", ROOT / "tests")
    assert [name for name in named if not any((place / name).is_file() for place in places)] == []


def test_links_of_the_readme_work_on_a_package_index() -> None:
    shown = metadata("evervec").json["description"]
    assert "](docs/" not in shown
    assert "https://github.com/evervec/evervec/blob/main/docs/using.md" in shown


def test_the_readme_shows_the_latest_chaos_run() -> None:
    """`make chaos ARGS="--write docs/chaos.md"` writes the page; its first table is the README's."""
    page, readme = _cells(_page("chaos")), _cells((ROOT / "README.md").read_text())
    pairs = [
        row for row in page if re.fullmatch(r"(postgresql|sqlite)[+\w]*", row[0]) and len(row) > 10
    ]
    assert len(pairs) == 4
    for pair, _, faults, writes, *rest in pairs:
        lost, doubled, stale, resurrected = rest[4:8]
        assert [pair, faults, writes, lost, doubled, stale, resurrected] in readme, pair


def test_the_readme_shows_the_latest_long_run_of_the_explorer() -> None:
    (tried,) = re.findall(r"tried ([\d,]+) schedules in", _page("exploring"))
    (scopes,) = re.findall(r"every schedule of\s+(\d+) small scopes", _page("exploring"))
    readme = (ROOT / "README.md").read_text()
    assert f"{tried} schedules of concurrent steps tried without a failure" in readme
    assert f"among them all schedules of {scopes} small scopes" in readme
    assert f"tried {tried} schedules without a failure" in _page("invariants")


def _cells(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def _page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text()
