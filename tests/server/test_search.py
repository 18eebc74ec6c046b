"""Searches over HTTP have the arguments and answers of the library's."""

from collections.abc import Iterator
from typing import Any

import pytest

import evervec
from evervec import Client, Evervec, InvalidArgument, MatchedWord
from evervec.server.keys import Keys
from support.service import Serve


@pytest.fixture
def ev() -> Iterator[Evervec]:
    with evervec.open("memory:", embedder="hashing") as ev:
        for n, author in enumerate(["ann", "bob", "ann"]):
            text = f"Tea grows on {'high ' * n}hills"
            ev.add("note", text, id=str(n), title=f"T{n}", metadata={"author": author})
        ev.add("page", "Coffee grows in the shade", id="c")
        ev.process_all()
        yield ev


@pytest.fixture
def client(ev: Evervec, serve: Serve) -> Iterator[Client]:
    with Client(serve(ev).url) as client:
        yield client


@pytest.mark.parametrize(
    "asked",
    [
        {"query": "tea hills"},
        {"query": "grows", "kind": ["note", "page"], "k": 2, "offset": 2},
        {"query": "grows", "min_relevance": 0.5, "min_similarity": 0.1},
        {"query": "grows", "group_by": "author", "groups": 2, "k": 1},
        {"query": "tea hills", "diversity": 0.7, "fields": ["title"]},
        {"query": "grows", "vector": [0.5] * 256, "mode": "semantic"},
        {"vector": [0.5] * 256, "kind": "note"},
    ],
)
def test_a_search_answers_as_the_library_does(ev: Evervec, client: Client, asked: Any) -> None:
    near, far = ev.search(**asked), client.search(**asked)
    assert far == near
    assert (far.via, far.version) == (near.via, near.version)


def test_an_explanation_comes_whole(client: Client) -> None:
    hit = client.search("tea", k=1, explain=True)[0]
    assert hit.explanation is not None
    assert hit.explanation.matched == (MatchedWord("Tea", 0, 3),)
    assert sum(hit.explanation.parts.values()) == pytest.approx(hit.relevance, abs=1e-9)


def test_similar_records_are_found(ev: Evervec, client: Client) -> None:
    assert client.similar("note", 0, k=1) == ev.similar("note", "0", k=1)
    with pytest.raises(InvalidArgument, match="does not exist"):
        client.similar("note", "x")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "query or a vector"),
        ({"vector": [1.0]}, "vector has 1 numbers"),
        ({"query": "a", "k": 500, "group_by": "author"}, "most_hits"),
        ({"query": "a", "group_by": "author", "offset": 1}, "leave out offset"),
        ({"query": "a", "diversity": 2}, "diversity"),
        ({"query": "a", "fields": ["id"]}, "fields"),
        ({"query": "a", "kind": []}, "kind"),
        ({"query": "a", "offset": -1}, "offset"),
    ],
)
def test_a_bad_search_is_refused_with_what_is_wrong(
    client: Client, asked: Any, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        client.search(**asked)


def test_a_token_for_one_kind_searches_no_other(ev: Evervec, serve: Serve) -> None:
    served = serve(ev)
    wanted = {"role": "reader", "kinds": ["page"], "expires_in": 60}
    made = served.http(Keys(ev.store).create("default").key).post("/v1/tokens", json=wanted)
    with Client(served.url, made.json()["token"]) as client:
        assert [hit.kind for hit in client.search("grows", kind=["page"])] == ["page"]
        for asked in ({"kind": ["page", "note"]}, {"kind": "note"}, {}):
            with pytest.raises(evervec.AccessDenied, match="kinds page only"):
                client.search("grows", **asked)
        with pytest.raises(evervec.AccessDenied):
            client.similar("note", "0")
