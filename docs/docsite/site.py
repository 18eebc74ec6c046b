"""Renders the pages with Zensical, strictly, and adds the Markdown of each page and `llms.txt`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from docsite import diagrams
from docsite.links import broken_links
from docsite.pages import CONFIG, DOCS, Page, SiteError, gather

_MARK = "llms.txt"
"""a file by which a site is recognised"""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def build(target: Path) -> Sequence[Page]:
    """Build the site into `target`, which is replaced only if nothing is wrong."""
    if target.exists() and not (target / _MARK).exists() and any(target.iterdir()):
        raise SiteError(f"{target} holds other files than a site: give another folder")
    pages, pictures = gather()
    with tempfile.TemporaryDirectory(prefix="evervec-docs-") as folder:
        stage = Path(folder)
        shutil.copy(CONFIG, stage / CONFIG.name)
        shutil.copytree(DOCS / "pictures", stage / "docs" / "pictures")
        for name, picture in pictures.items():
            shutil.copy(picture, stage / "docs" / "pictures" / name)
        for page in pages:
            drawn, drawings = diagrams.replaced(page.path, page.text)
            _write(stage / "docs" / page.path, drawn)
            for name, drawing in drawings.items():
                _write(stage / "docs" / "pictures" / name, drawing)
        _render(stage)
        site = stage / "site"
        for page in pages:
            _write(site / page.path, page.text)
        _write(site / _MARK, "\n".join(_short(pages)))
        _write(site / "llms-full.txt", "\n\n".join(page.text.strip() for page in pages) + "\n")
        if broken := broken_links(site):
            raise SiteError("\n".join(broken))
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(site, target)
    return pages


def _render(stage: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
        cwd=stage, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = _COLOUR.sub("", done.stdout + done.stderr)
    if done.returncode or "Warning" in said:
        raise SiteError(said.partition("Traceback")[0])


def _short(pages: Sequence[Page]) -> Iterator[str]:
    """`llms.txt`: every page with its first sentence, by section."""
    first = pages[0]
    yield f"# {first.title}\n\n> {first.summary}\n"
    yield "Every page is also Markdown, at the paths below. llms-full.txt has all of them.\n"
    for section, found in groupby(pages[1:], lambda page: page.section):
        yield f"## {section}\n"
        for page in found:
            yield f"- [{page.title}]({page.path}): {page.summary}"
        yield ""


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
