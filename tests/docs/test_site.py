"""The documentation site builds without a warning, leads nowhere wrong, and loads nothing."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from docsite import diagrams
from docsite.links import broken_links
from docsite.pages import DOCS, Page, SiteError, gather, made, navigation
from docsite.site import build

Site = tuple[Path, Sequence[Page]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("docs") / "site"
    return folder, build(folder)  # it raises what is wrong with pages, links and anchors


def test_every_page_is_in_the_navigation_once() -> None:
    listed = [path for _, path in navigation()]
    assert len(set(listed)) == len(listed)
    committed = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert committed <= set(listed), "add the page to nav in docs/zensical.toml"


def test_every_page_is_there_as_html_and_as_markdown(site: Site) -> None:
    folder, pages = site
    for page in pages:
        assert (folder / page.path).read_text() == page.text
        html = (folder / page.path).with_suffix(".html").read_text()
        assert page.title in html, page.path


def test_llms_txt_lists_every_page_with_a_summary(site: Site) -> None:
    folder, pages = site
    listed = (folder / "llms.txt").read_text()
    whole = (folder / "llms-full.txt").read_text()
    for page in pages:
        assert page.summary, f"{page.path} does not begin with a sentence"
        assert page.section == "" or f"({page.path}): {page.summary}" in listed
        assert page.text.strip() in whole


def test_no_page_holds_mermaid_which_would_be_loaded_from_outside(site: Site) -> None:
    folder, _ = site
    for page in folder.rglob("*.html"):
        assert 'class="mermaid"' not in page.read_text(), page
    assert (folder / "pictures" / "architecture-1.svg").exists()


# The checks themselves: a site that is wrong must fail.


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ('<a href="away.html">', "away.html leads nowhere"),
        ('<a href="#none">', "#none: there is no such heading"),
        ('<a href="other.html#none">', "other.html#none: there is no such heading"),
        ('<a href="../../outside.html">', "../../outside.html leads nowhere"),
        ('<script src="https://cdn.test/x.js">', "<script> loads https://cdn.test/x.js"),
        ('<link rel="stylesheet" href="//fonts.test/x.css">', "<link> loads //fonts.test/x.css"),
        ('<img src="http://pictures.test/x.png">', "<img> loads http://pictures.test/x.png"),
    ],
)
def test_a_wrong_link_is_found(tmp_path: Path, html: str, problem: str) -> None:
    (tmp_path / "other.html").write_text("<h1 id='there'>")
    (tmp_path / "page.html").write_text(f"<a href='other.html#there'>{html}")
    (found,) = broken_links(tmp_path)
    assert found.startswith(f"page.html: {problem}")


@pytest.mark.parametrize("rule", ["@import 'https://x.test/a.css'", "a { src: url(//x.test/a) }"])
def test_a_style_that_loads_from_outside_is_found(tmp_path: Path, rule: str) -> None:
    (tmp_path / "style.css").write_text(f"b {{ background: url(data:image/png;base64,AA) }} {rule}")
    (found,) = broken_links(tmp_path)
    assert "x.test/a" in found


def test_a_link_of_a_page_to_an_outside_page_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('<a href="https://example.com/">')
    assert broken_links(tmp_path) == []


def test_a_page_with_a_broken_link_fails_the_build_and_keeps_the_old_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "site" / "llms.txt"
    old.parent.mkdir()
    old.write_text("old")
    pages = [Page("index.md", "", "# evervec\n\nA [link](nowhere.md).\n")]
    monkeypatch.setattr("docsite.site.gather", lambda: (pages, {}))
    with pytest.raises(SiteError, match=r"index\.md:3"):
        build(tmp_path / "site")
    assert old.read_text() == "old"


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(SiteError, match="holds other files"):
        build(tmp_path)
    assert (tmp_path / "letter.txt").exists()


def test_a_page_that_is_missing_or_has_no_title_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("docsite.pages.navigation", lambda: [("Guides", "gone.md")])
    with pytest.raises(SiteError, match=r"lists gone\.md, which is not in docs/"):
        gather()
    with pytest.raises(SiteError, match=r"bare\.md has no title"):
        _ = Page("bare.md", "Guides", "No heading.").title
    with pytest.raises(SiteError, match="nothing makes 'magic'"):
        made("magic")


def test_a_diagram_that_is_not_understood_is_an_error() -> None:
    with pytest.raises(diagrams.DiagramError, match="note over A"):
        diagrams.draw("sequenceDiagram\nparticipant A as a\nnote over A: hm")
    with pytest.raises(diagrams.DiagramError, match="does not continue the chain"):
        diagrams.draw('flowchart TD\na["1"] --> b["2"]\na --> c["3"]')
    with pytest.raises(diagrams.DiagramError, match="pie"):
        diagrams.draw("pie\n1: 2")


def test_text_in_a_diagram_is_escaped() -> None:
    drawn = diagrams.draw("sequenceDiagram\nparticipant A as a<b\nA->>A: x & <script>")
    assert "a&lt;b" in drawn
    assert "x &amp; &lt;script&gt;" in drawn
