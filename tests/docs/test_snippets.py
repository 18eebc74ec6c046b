"""The code in README.md and docs/ runs, and prints what the page says it prints."""

import os
from pathlib import Path

import pytest

from support.postgres import DATABASES
from support.snippets import read_blocks, run_page

PROJECT = Path(__file__).parents[2]
APART = {"django.md"}  # its blocks are the files of a project, which test_django_page.py runs
PAGES = [
    PROJECT / "README.md",
    *(page for page in sorted((PROJECT / "docs").glob("*.md")) if page.name not in APART),
]


@pytest.fixture(autouse=True)
def in_a_fresh_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages run where a newcomer would be: in an empty folder, with nothing configured."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in os.environ:
        if name.startswith("EVERVEC_") and not name.startswith("EVERVEC_TEST_"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_on_the_page_runs_and_prints_what_the_page_says(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page.name == "postgresql.md":  # its reader has a database
        monkeypatch.setenv("DATABASE_URL", DATABASES.borrow())
    run_page(page)


def test_the_readme_shows_code_that_runs() -> None:
    assert any(block.runs for block in read_blocks(PROJECT / "README.md"))


# The reader itself: a page that lies must fail.


def page_of(tmp_path: Path, *lines: str) -> Path:
    page = tmp_path / "page.md"
    page.write_text("\n".join(lines), encoding="utf-8")
    return page


def test_blocks_of_one_page_share_their_names(tmp_path: Path) -> None:
    page = page_of(
        tmp_path,
        *("```python", "greeting = 'hello'", "```", "and then"),
        *("```python", "print(greeting)", "```", "<!-- output -->", "```text", "hello", "```"),
    )
    run_page(page)


def test_an_output_that_differs_fails_and_names_its_line(tmp_path: Path) -> None:
    page = page_of(
        tmp_path,
        *("```python", "print('hello')", "```", "", "<!-- output -->", "```", "goodbye", "```"),
    )
    with pytest.raises(AssertionError, match=r"page\.md:7: .*\s+goodbye\s+.*\s+hello"):
        run_page(page)


def test_an_output_with_no_code_before_it_fails(tmp_path: Path) -> None:
    page = page_of(tmp_path, "<!-- output -->", "```text", "hello", "```")
    with pytest.raises(AssertionError, match="no Python block ran"):
        run_page(page)


def test_a_block_marked_as_not_run_is_left_out(tmp_path: Path) -> None:
    page = page_of(tmp_path, "<!-- not run -->", "", "```python", "1 / 0", "```")
    assert not any(block.runs for block in read_blocks(page))
    run_page(page)


def test_an_error_points_at_the_line_of_the_page(tmp_path: Path) -> None:
    page = page_of(tmp_path, "# Title", "", "```python", "fine = 1", "1 / 0", "```")
    with pytest.raises(ZeroDivisionError) as raised:
        run_page(page)
    where = raised.traceback[-1]
    assert (str(where.path), where.lineno + 1) == (str(page), 5)


def test_a_block_inside_a_list_is_read_without_its_indent(tmp_path: Path) -> None:
    page = page_of(tmp_path, "1. do this:", "   ```python", "   if True:", "       x = 1", "   ```")
    assert [block.content for block in read_blocks(page)] == ["if True:\n    x = 1"]
    run_page(page)


def test_a_block_that_is_never_closed_is_an_error(tmp_path: Path) -> None:
    page = page_of(tmp_path, "```python", "x = 1")
    with pytest.raises(ValueError, match=r"page\.md:1: this block is never closed"):
        read_blocks(page)
