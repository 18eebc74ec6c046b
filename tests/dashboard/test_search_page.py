"""The search page: what is found and why, by a form that is also an address."""

import json
import os
import re
import shlex
import subprocess
import sys
from html import unescape
from typing import Any

import pytest

from evervec import Evervec, ProviderUnavailable
from support.dashboard import Person, person
from support.pages import HOSTILE, Shown, read
from support.service import Served


@pytest.fixture
def library(ev: Evervec) -> Evervec:
    """Some embedded records."""
    ev.add("note", "Tea is grown on hills in Assam.", id="tea", title="Tea",
           metadata={"topic": "plants", "year": 2020})  # fmt: skip
    ev.add("note", "Coffee likes shade and rain.", id="coffee",
           metadata={"topic": "plants", "year": 2024})  # fmt: skip
    ev.add("page", "A tea house in the hills of Kyoto.", id="house", metadata={"topic": "places"})
    ev.process_all()
    return ev


def hits(person: Person, **params: Any) -> list[str]:
    """The ids of the hits, by the same address as the page."""
    answer = person.get("/ui/search", **params, format="ndjson")
    assert answer.status_code == 200, answer.text
    return [json.loads(line)["id"] for line in answer.text.splitlines()]


def copies(person: Person, **params: Any) -> dict[str, str]:
    """The texts to copy, by name."""
    page = person.get("/ui/search", **params).text
    found = re.findall(r'<pre id="copy-(\w+)"[^>]*>(.*?)</pre>', page, re.DOTALL)
    return {name: unescape(text) for name, text in found}


@pytest.mark.parametrize("role", ["reader", "writer", "admin"])
def test_every_role_searches_and_sees_why(library: Evervec, served: Served, role: str) -> None:
    somebody = person(served, served.key(role=role))
    page = read(somebody, "/ui/search", q="tea hills")
    assert hits(somebody, q="tea hills")[0] == "tea"
    assert "Tea" in page.text
    assert "rank 1 by meaning" in page.text
    marked = [words for words in page.marked if words]
    assert {"Tea", "hills"} <= set(marked)


def test_words_of_the_title_are_marked(ev: Evervec, served: Served) -> None:
    ev.add(
        "note", "Open the settings and follow the steps.", id="1", title="Reset a <b>password</b>"
    )
    ev.process_all()
    page = person(served).get("/ui/search", q="resetting passwords").text
    assert "<mark>Reset</mark> a &lt;b&gt;<mark>password</mark>&lt;/b&gt;" in page
    assert "<dt>Marked words</dt><dd>Reset, password</dd>" in page


def test_versions_are_not_compared_when_only_words_are_searched(
    library: Evervec, served: Served
) -> None:
    library.migrate("hashing:64", version="next")
    library.process_all()
    somebody = person(served)
    asked: dict[str, Any] = {"q": "tea", "version": "hashing-256", "other": "next"}
    assert "hits are found by both versions" in read(somebody, "/ui/search", **asked).text
    for model in library.models:
        model.provider._gates.shut(ProviderUnavailable("answers 503"))
    page = read(somebody, "/ui/search", **asked | {"q": "hills"}).text
    assert page.count("Only words were searched") == 1
    assert "Not compared with next : words find the same with every version" in page
    assert "hits are found by both versions" not in page


def test_the_bar_of_a_hit_adds_up(library: Evervec, served: Served) -> None:
    somebody = person(served)
    (row, *_) = map(
        json.loads, somebody.get("/ui/search", q="tea", format="ndjson").text.splitlines()
    )
    assert row["meaning"] + row["words"] == pytest.approx(row["relevance"])


def test_the_form_narrows_a_search(library: Evervec, served: Served) -> None:
    somebody = person(served)
    everything = {"tea", "coffee", "house"}
    assert set(hits(somebody, q="tea")) == everything
    assert set(hits(somebody, q="tea", kind="page")) == {"house"}
    assert set(hits(somebody, q="tea", kind=["page", "note"])) == everything
    assert set(hits(somebody, q="tea", k="1")) == {"tea"}
    assert set(hits(somebody, q="coffee", mode="text")) == {"coffee"}
    assert hits(somebody, q="tea", min_relevance="2") == []
    rows = {"field": ["topic", "year"], "test": ["eq", "gte"], "value": ["plants", "2024"]}
    assert hits(somebody, q="tea", **rows) == ["coffee"]
    assert set(hits(somebody, q="tea", filter='{"topic": "places"}')) == {"house"}
    assert hits(somebody, q="tea", filter='{"topic": "places"}', **rows) == []


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"k": "0"}, "hits: must be a number from 1"),
        ({"k": "many"}, "hits: must be a number from 1"),
        ({"k": "9" * 5000}, "hits: must be a number from 1"),
        ({"k": "000000005" + "0" * 5000}, "hits: must be a number from 1"),
        ({"mode": "magic"}, "mode: must be hybrid, semantic or text"),
        ({"field": "a", "test": "like", "value": "b"}, "test: must be eq, ne, gt"),
        ({"field": "a", "value": "b"}, "test: must be eq, ne, gt"),
        ({"field": ["a"] * 13, "test": ["eq"] * 13, "value": ["b"] * 13}, "at most 12 fields"),
        ({"filter": "{"}, "filter: is not JSON"),
        ({"filter": "[1]"}, "filter: must be an object"),
        ({"min_relevance": "nan"}, "min_relevance: must be a number"),
        ({"version": "gone"}, "have no version"),
        ({"other": "gone"}, "have no version"),
        ({"mode": "text", "min_similarity": "0.5"}, "min_similarity needs vectors"),
        ({"kind": "\0"}, "kind"),
    ],
)
def test_what_is_wrong_is_said_beside_the_form(
    library: Evervec, served: Served, params: dict[str, Any], words: str
) -> None:
    answer = person(served).get("/ui/search", q="tea", **params)
    page = Shown(answer.text)
    assert answer.status_code == 422
    assert words in page.text
    assert page.value_of("q") == "tea"
    asked = {"q": "tea", "format": "ndjson", **params}
    assert person(served).get("/ui/search", **asked).status_code == 422, "not an empty list"


def test_two_versions_are_shown_side_by_side(library: Evervec, served: Served) -> None:
    migration = library.migrate("hashing:64", version="next")
    library.process_all()
    page = read(person(served), "/ui/search", q="tea", other="next", version="hashing-256")
    assert "3 of 3 hits are found by both versions" in page.text
    assert page.text.count("same") >= 1
    migration.cancel()


def test_a_version_that_lacks_a_kind_shows_what_only_the_other_has(
    library: Evervec, served: Served
) -> None:
    library.migrate("hashing:64", version="next", kind="note")
    library.process_all()
    page = read(person(served), "/ui/search", q="tea", other="next")
    assert "2 of 3 hits are found by both versions" in page.text
    assert "only here" in page.text


def test_a_tenant_sees_only_its_own(library: Evervec, served: Served) -> None:
    other = library.of("other")
    other.add("secret", "tea of the others", id="theirs")
    library.process_all()
    mine, theirs = (person(served, served.key(tenant)) for tenant in ("default", "other"))
    assert hits(theirs, q="tea") == ["theirs"]
    assert "theirs" not in hits(mine, q="tea")
    assert "secret" not in read(mine, "/ui/search", q="tea").text
    assert mine.get("/ui/search", q="tea", tenant="other").status_code == 403
    admin = person(served, served.key(role="admin"))
    assert hits(admin, q="tea", tenant="other") == ["theirs"]


def test_hostile_texts_stay_texts(ev: Evervec, served: Served) -> None:
    ev.add("note", f"tea {HOSTILE}", id=HOSTILE, title=HOSTILE, metadata={HOSTILE: HOSTILE})
    ev.add(HOSTILE, f"tea {HOSTILE}", id="1")
    ev.process_all()
    somebody = person(served)
    asked: list[dict[str, Any]] = [
        {"q": "tea"}, {"q": HOSTILE}, {"q": "tea", "kind": HOSTILE}, {"q": "tea", "version": HOSTILE},
        {"q": "tea", "field": HOSTILE, "test": HOSTILE, "value": HOSTILE},
        {"q": "tea", "filter": HOSTILE, "k": HOSTILE, "min_relevance": HOSTILE, "mode": HOSTILE},
    ]  # fmt: skip
    for params in asked:
        answer = somebody.get("/ui/search", **params)
        assert answer.status_code in (200, 422), params
        Shown(answer.text).assert_tame()


ODD = 'it\'s "tea" $HOME `id` \\ -- \u2066 é\n#'


@pytest.mark.parametrize("query", ["tea hills", "--mode", ODD, "-"])
def test_the_copied_programs_find_what_the_page_finds(
    library: Evervec, served: Served, query: str
) -> None:
    library.add("note", f"odd {ODD}", id="odd", metadata={"a=b": ODD, "topic": "plants"})
    library.process_all()
    key = served.key()
    somebody = person(served, key)
    params: dict[str, Any] = {
        "q": query, "kind": ["note", "page"], "k": "7", "field": ["topic", "a=b"],
        "test": ["in", "ne"], "value": ["plants, 5", "x"], "min_relevance": "-0.5",
    }  # fmt: skip
    wanted, texts = hits(somebody, **params), copies(somebody, **params)
    assert wanted
    environ = {**os.environ, "EVERVEC_KEY": key, "EVERVEC_STORE": library.store.url,
               "EVERVEC_EMBEDDER": "hashing", "NO_PROXY": "*"}  # fmt: skip
    assert key not in "".join(texts.values())

    def run(*command: str) -> str:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    answer = json.loads(run("bash", "-c", texts["curl"]))
    assert [hit["id"] for hit in answer["hits"]] == wanted
    printed = run(sys.executable, "-c", texts["python"])
    assert [line.split()[2] for line in printed.splitlines()] == wanted
    name, *words = shlex.split(texts["cli"])
    assert name == "evervec"
    command = [sys.executable, "-m", "evervec", *words[:1], "--json", *words[1:]]
    found = json.loads(run("bash", "-c", shlex.join(command)))
    assert [hit["id"] for hit in (found["hits"] if isinstance(found, dict) else found)] == wanted


def test_an_empty_store_says_how_to_begin(served: Served) -> None:
    assert "add --no-embed note" in read(person(served), "/ui/search").text
