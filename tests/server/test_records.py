"""Records over HTTP: what is answered is saved, once, and only over what was seen."""

import threading

import httpx
import pytest

from evervec import Evervec
from evervec.model.jobs import Ticket
from support.service import Serve, Served
from support.world import fail_for_good

NOTE = {"kind": "note", "id": "tea", "text": "Tea is grown on hills in Assam."}


@pytest.fixture
def http(served: Served) -> httpx.Client:
    return served.http(served.key())


def test_a_record_is_added_found_and_deleted(http: httpx.Client) -> None:
    added = http.post("/v1/records", json={**NOTE, "metadata": {"topic": "plants"}})
    assert added.status_code == 202
    assert added.json().items() >= {"kind": "note", "id": "tea", "is_new": True}.items()
    asked = {"query": "where is tea grown", "after": added.json(), "filter": {"topic": "plants"}}
    found = http.post("/v1/search", json=asked).json()
    assert [hit["id"] for hit in found["hits"]] == ["tea"]
    assert (found["via"], found["version"]) == ("hybrid", "hashing-256")
    record = http.get(added.headers["location"])
    assert (record.json()["embedded"], record.headers["etag"]) == (True, added.headers["etag"])
    assert http.delete("/v1/records/note/tea").status_code == 202
    assert http.get("/v1/records/note/tea").status_code == 404
    assert http.delete("/v1/records/note/tea").status_code == 404
    assert http.post("/v1/search", json={"query": "tea"}).json()["hits"] == []


def test_a_wait_is_answered_once_the_record_is_embedded(http: httpx.Client) -> None:
    added = http.post("/v1/records", json=NOTE, headers={"Prefer": "respond-async, wait=20"})
    assert (added.status_code, added.json()["status"]) == (201, "done")
    assert added.headers["preference-applied"] == "wait=20"
    gone = http.delete("/v1/records/note/tea", headers={"Prefer": "wait=20"})
    assert (gone.status_code, gone.json()["status"]) == (200, "done")


def test_a_wait_that_runs_out_says_that_the_record_is_saved(ev: Evervec, serve: Serve) -> None:
    served = serve(ev)  # nobody works
    http = served.http(served.key())
    added = http.post("/v1/records", json=NOTE, headers={"Prefer": "wait=0"})
    assert (added.status_code, added.json()["status"]) == (202, "pending")
    late = http.post("/v1/search", json={"query": "tea", "after": added.json(), "wait": 0.01})
    assert (late.status_code, late.json()["type"]) == (409, "urn:evervec:WaitTimeout")
    fail_for_good(ev, "tea")
    failed = http.post("/v1/wait", json={"ticket": added.json(), "wait": 5})
    assert (failed.status_code, failed.json()["type"]) == (409, "urn:evervec:JobFailed")
    again = http.delete("/v1/records/note/tea", headers={"Prefer": "wait=0"})
    assert again.status_code == 202


def test_a_ticket_that_the_store_does_not_know_is_not_waited_for(http: httpx.Client) -> None:
    ticket = http.post("/v1/records", json=NOTE).json()
    for unknown in ({**ticket, "id": "another"}, {**ticket, "seq": ticket["seq"] + 1000}):
        answer = http.post("/v1/wait", json={"ticket": unknown, "wait": 300}, timeout=10)
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:evervec:WaitTimeout")
        assert "not in the store" in answer.json()["detail"]


def test_a_change_is_made_only_over_the_version_that_was_seen(http: httpx.Client) -> None:
    first = http.post("/v1/records", json=NOTE).headers["etag"]
    second = http.post(
        "/v1/records", json={**NOTE, "text": "second"}, headers={"If-Match": first}
    ).headers["etag"]
    late = http.post("/v1/records", json={**NOTE, "text": "late"}, headers={"If-Match": first})
    assert late.status_code == 412
    assert http.get("/v1/records/note/tea").json()["text"] == "second"
    assert http.delete("/v1/records/note/tea", headers={"If-Match": first}).status_code == 412
    unchanged = http.get("/v1/records/note/tea", headers={"If-None-Match": second})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    any_version = {**NOTE, "id": "none"}
    assert http.post("/v1/records", json=any_version, headers={"If-Match": "*"}).status_code == 412
    assert http.post("/v1/records", json=NOTE, headers={"If-Match": "nonsense"}).status_code == 412
    assert http.delete("/v1/records/note/tea", headers={"If-Match": second}).status_code == 202


def test_of_writers_that_saw_the_same_version_one_succeeds(served: Served) -> None:
    key = served.key(role="admin")
    tag = served.http(key).post("/v1/records", json=NOTE).headers["etag"]
    answers: list[int] = []

    def write(number: int) -> None:
        body = {**NOTE, "text": f"by {number}"}
        answered = served.http(key).post("/v1/records", json=body, headers={"If-Match": tag})
        answers.append(answered.status_code)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [202] + 11 * [412]


def test_a_request_that_is_sent_again_is_not_done_again(served: Served, ev: Evervec) -> None:
    http = served.http(served.key())
    headers = {"Idempotency-Key": "order-1"}
    body = {"kind": "note", "text": "no id of its own"}
    first = http.post("/v1/records", json=body, headers=headers)
    again = http.post("/v1/records", json=body, headers=headers)
    assert again.content == first.content
    assert (again.status_code, again.headers["etag"]) == (202, first.headers["etag"])
    assert again.headers["idempotency-replayed"] == "true"
    assert len(ev.records()) == 1
    other = http.post("/v1/records", json={**body, "text": "another"}, headers=headers)
    assert (other.status_code, len(ev.records())) == (422, 1)
    elsewhere = served.http(served.key("other")).post("/v1/records", json=body, headers=headers)
    assert elsewhere.json()["id"] != first.json()["id"]


def test_a_request_whose_answer_was_lost_makes_the_same_record(
    served: Served, ev: Evervec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the service had died between the save and the note of its answer."""
    monkeypatch.setattr(ev.store.service, "answer", lambda *_: None)
    http = served.http(served.key())
    body, headers = {"kind": "note", "text": "no id of its own"}, {"Idempotency-Key": "order-2"}
    ids = {http.post("/v1/records", json=body, headers=headers).json()["id"] for _ in range(3)}
    assert len(ids) == len(ev.records()) == 1


def test_pages_meet_every_record_and_job_once(served: Served, ev: Evervec) -> None:
    list(ev.add_many("note", ({"id": f"n{n:02}", "text": f"text {n}"} for n in range(25))))
    http = served.http(served.key())
    for path, name in (("/v1/records", "records"), ("/v1/jobs", "jobs")):
        seen, cursor = [], None
        while True:
            asked = {"limit": 10, **({"cursor": cursor} if cursor else {})}
            page = http.get(path, params=asked).json()
            seen += [item.get("record_id") or item["id"] for item in page[name]]
            cursor = page["cursor"]
            if cursor is None:
                break
        assert seen == [f"n{n:02}" for n in range(25)]
        assert http.get(path, params={"cursor": "bm9uc2Vuc2U"}).status_code == 422


def test_lists_are_limited_by_kind_state_and_metadata(ev: Evervec, serve: Serve) -> None:
    ev.add("note", "one", id="1", metadata={"year": 2020})
    ev.add("page", "two", id="2", metadata={"year": 2021})
    served = serve(ev)
    http = served.http(served.key())

    def ids(**asked: str) -> list[str]:
        return [record["id"] for record in http.get("/v1/records", params=asked).json()["records"]]

    assert ids() == ["1", "2"]
    assert ids(kind="page") == ["2"]
    assert ids(embedded="true") == []
    assert ids(filter='{"year": {"lt": 2021}}') == ["1"]
    for bad in ("{", "[]", '{"year": {"about": 1}}'):
        assert http.get("/v1/records", params={"filter": bad}).status_code == 422


@pytest.mark.parametrize("id", ["a/b", "a/history", "ä ö", "%2F", "?x=1&y", "a\tb"])
def test_any_id_can_be_in_a_path(http: httpx.Client, id: str) -> None:
    place = http.post("/v1/records", json={**NOTE, "id": id}).headers["location"]
    assert http.get(place).json()["id"] == id
    assert "attempts" in http.get(f"{place}/history").json()
    assert http.delete(place).status_code == 202


def test_the_same_again_enqueues_nothing_and_an_old_version_is_not_accepted(
    http: httpx.Client,
) -> None:
    http.post("/v1/records", json={**NOTE, "version": 2})
    again = http.post("/v1/records", json={**NOTE, "version": 3}).json()
    assert (again["accepted"], again["enqueued"]) == (True, False)
    old = http.post("/v1/records", json={**NOTE, "text": "old", "version": 1}).json()
    assert old["accepted"] is False


def test_a_mistyped_parameter_is_noticed(http: httpx.Client) -> None:
    refused = http.get("/v1/records?knd=note")
    assert refused.status_code == 422
    assert "did you mean 'kind'" in refused.json()["detail"]


def test_adds_that_come_at_once_share_commits(served: Served, ev: Evervec) -> None:
    """And each gets its own ticket."""
    saves: list[int] = []
    save = ev.store.changes.save

    def counted(tenant: str, kind: str, drafts: list[object], conn: object = None) -> list[Ticket]:
        saves.append(len(drafts))
        return save(tenant, kind, drafts, conn)  # type: ignore[arg-type]

    ev.store.changes.save = counted  # type: ignore[method-assign,assignment]
    key = served.key(role="admin")
    tickets: dict[str, str] = {}

    def add(worker: int) -> None:
        http = served.http(key)
        for n in range(10):
            id = f"{worker}-{n}"
            body = {"kind": "note", "id": id, "text": f"text {id}"}
            tickets[id] = http.post("/v1/records", json=body).json()["id"]

    threads = [threading.Thread(target=add, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(saves) == 160
    assert len(saves) < 160
    assert all(id == ticket for id, ticket in tickets.items())
    assert len(ev.records(limit=1000)) == 160


def test_kinds_of_the_program_are_checked_and_rendered(ev: Evervec, serve: Serve) -> None:
    from pydantic import BaseModel

    from evervec import Kind

    class Decision(BaseModel):
        outcome: str

    ev.register(Kind("decision", model=Decision, text="Outcome: {outcome}"))
    served = serve(ev)
    http = served.http(served.key())
    body = {"kind": "decision", "id": "1", "data": {"outcome": "ship it"}}
    assert http.post("/v1/records", json=body).status_code == 202
    assert http.get("/v1/records/decision/1").json()["text"] == "Outcome: ship it"
    bad = http.post("/v1/records", json={**body, "data": {"outcme": "ship it"}})
    assert bad.status_code == 422
    assert "outcome" in bad.json()["detail"]


def test_records_are_counted_and_deleted_by_a_filter(http: httpx.Client, served: Served) -> None:
    for n in range(4):
        http.post("/v1/records", json={**NOTE, "id": str(n), "metadata": {"n": n}})
    few = {"filter": {"not": {"n": {"gte": 2}}}}
    assert http.post("/v1/records/count", json={}).json() == {"count": 4}
    assert http.post("/v1/records/count", json=few).json() == {"count": 2}
    tried = http.post("/v1/records/delete", json={**few, "dry_run": True})
    assert (tried.json(), http.post("/v1/records/count", json={}).json()["count"]) == (
        {"count": 2}, 4,
    )  # fmt: skip
    reader = served.http(served.key(role="reader"))
    assert reader.post("/v1/records/delete", json=few).status_code == 403
    unfiltered: list[dict[str, object]] = [{}, {"filter": {}}, {"filter": None, "kind": "note"}]
    for every in unfiltered:
        assert http.post("/v1/records/delete", json=every).status_code == 422
    assert http.post("/v1/records/delete", json=few).json() == {"count": 2}
    assert [r["id"] for r in http.get("/v1/records").json()["records"]] == ["2", "3"]


@pytest.mark.parametrize(
    ("path", "good"), [("/v1/records", NOTE), ("/v1/search", {"query": "tea"})]
)
def test_routes_without_fastapi_refuse_what_it_would(
    http: httpx.Client, path: str, good: dict[str, str]
) -> None:
    def asked(**how: object) -> tuple[int, str]:
        answered = http.post(path, **how)  # type: ignore[arg-type]
        assert answered.is_success or answered.headers["content-type"] == "application/problem+json"
        return answered.status_code, answered.text

    assert asked(json=good)[0] in (200, 202)
    status, text = asked(json=good, params={"tenat": "x"})
    assert (status, "did you mean 'tenant'?" in text) == (422, True)
    assert asked(json=good, params={"tenant": "another"})[0] == 403
    assert asked(content=b"kind=note", headers={"Content-Type": "text/plain"})[0] == 415
    assert asked(content=b"{", headers={"Content-Type": "application/json"})[0] == 400
    assert asked(content=b"", headers={"Content-Type": "application/json"})[0] == 400
    assert asked(json=[good])[0] == 422
    status, text = asked(json={**good, "colour": "green"})
    assert (status, "colour" in text) == (422, True)
    deep = b'{"filter": ' + b'{"a": ' * 200 + b"1" + b"}" * 201
    assert asked(content=deep, headers={"Content-Type": "application/json"})[0] in (400, 422)
    assert http.put(path, json=good).status_code == 405
