"""Vectors over HTTP."""

import numpy as np
import pytest

import evervec
from evervec import Client, Evervec, InvalidArgument
from evervec.model.bounds import MOST_VECTORS
from support.service import Serve, Served


def filled(ev: Evervec, count: int) -> list[str]:
    list(ev.add_many("note", ({"id": n, "text": f"text {n}"} for n in range(count))))
    ev.process_all()
    return [str(n) for n in range(count)]


def test_the_client_gives_the_librarys_vectors(ev: Evervec, serve: Serve) -> None:
    ids = filled(ev, MOST_VECTORS + 30)
    served = serve(ev)
    with Client(served.url, served.key()) as client:
        found, same = client.vectors("note", [*ids, "absent"]), ev.vectors("note", ids)
        assert list(found) == list(same) == ids
        for id in ids:
            (chunk,), (own,) = found[id], same[id]
            assert (chunk.position, chunk.start, chunk.end) == (0, 0, len(f"text {id}"))
            assert chunk.vector.dtype == np.float32
            assert np.array_equal(chunk.vector, own.vector), "JSON loses nothing"
        assert client.vectors("note", []) == client.vectors("none", ids) == {}
        with pytest.raises(InvalidArgument, match="ids must be a list"):
            client.vectors("note", "1")


def test_a_response_is_bounded_and_says_what_is_left(serve: Serve) -> None:
    with evervec.open("memory:", embedder="hashing", server_page_mb=0.01) as ev:
        ids = filled(ev, 40)
        served = serve(ev)
        key = served.key(role="reader")
        asked = {"kind": "note", "ids": ids}
        answered = served.http(key).post("/v1/vectors", json=asked).json()
        assert (len(answered["vectors"]), answered["left"]) == (2, ids[2:])
        with Client(served.url, key) as client:
            assert list(client.vectors("note", ids)) == ids


def test_malformed_requests_are_refused(served: Served) -> None:
    http = served.http(served.key())
    for body in (
        {"kind": "note", "ids": []},
        {"kind": "note", "ids": ["1"] * (MOST_VECTORS + 1)},
        {"kind": "note", "ids": "1"},
        {"kind": "note", "ids": [""]},
        {"kind": "note", "ids": ["\0"]},
        {"kind": "", "ids": ["1"]},
        {"ids": ["1"]},
    ):
        assert http.post("/v1/vectors", json=body).status_code == 422, body


def test_other_tenants_and_kinds_of_a_token_are_closed(ev: Evervec, serve: Serve) -> None:
    ids = filled(ev, 2)
    served = serve(ev)
    with Client(served.url, served.key(tenant="other", role="reader")) as client:
        assert client.vectors("note", ids) == {}
    made = served.http(served.key()).post("/v1/tokens", json={"role": "reader", "kinds": ["note"]})
    token = served.http(made.json()["token"])
    asked = {"kind": "note", "ids": ids}
    assert len(token.post("/v1/vectors", json=asked).json()["vectors"]) == 2
    assert token.post("/v1/vectors", json={**asked, "kind": "mail"}).status_code == 403


def test_a_record_that_alone_is_too_long_is_named(serve: Serve) -> None:
    with evervec.open("memory:", embedder="hashing", server_page_mb=0.01, chunk_tokens=8) as ev:
        ids = filled(ev, 3)
        ev.add("note", "tea and hills. " * 200, id="long")
        ev.process_all()
        http = serve(ev).http()
        asked = {"kind": "note", "ids": [*ids, "long"]}
        answered = http.post("/v1/vectors", json=asked).json()
        assert answered["left"] == [ids[2], "long"]
        refused = http.post("/v1/vectors", json={"kind": "note", "ids": ["long"]})
        assert refused.status_code == 422
        assert "(server_page_mb)" in refused.json()["detail"]
