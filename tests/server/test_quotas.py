"""Quotas over HTTP: refused with what is used and allowed, seen in headers, metrics and usage."""

import json
from typing import Any

import pytest

from evervec import Client, Evervec, Limits, QuotaExceeded
from support.processes import until
from support.service import Serve, Served


@pytest.fixture
def quiet(ev: Evervec, serve: Serve) -> Served:
    """A service without a worker."""
    return serve(ev)


def note(id: str, text: str = "x", **more: Any) -> dict[str, Any]:
    return {"kind": "note", "id": id, "text": text, **more}


def test_an_add_beyond_a_quota_is_refused_and_headers_tell_what_is_left(
    quiet: Served, ev: Evervec
) -> None:
    acme = ev.of("acme")
    acme.set_limits(Limits(records=2, money=1.5))
    http = quiet.http(quiet.key("acme"))
    left = [http.post("/v1/records", json=note(id)).headers["x-quota"] for id in "ab"]
    assert left[1] == '"kinds";q=200;r=199, "records";q=2;r=0, "money";q=1.5;r=1.5'
    refused = http.post("/v1/records", json=note("c"))
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:evervec:QuotaExceeded")
    assert "has 2 of 2 (tenant_records)" in refused.json()["detail"]
    assert http.post("/v1/records", json=note("a", "changed")).status_code == 202
    assert http.delete("/v1/records/note/a").status_code == 202
    assert http.post("/v1/records", json=note("c")).status_code == 202
    with Client(quiet.url, quiet.key("acme")) as client, pytest.raises(QuotaExceeded):
        client.add("note", "x", id="d")
    free = quiet.http(quiet.key("other")).post("/v1/records", json=note("a"))
    assert "x-quota" not in free.headers


def test_of_adds_that_are_saved_together_only_those_without_room_are_refused(
    quiet: Served, ev: Evervec
) -> None:
    from evervec.records.writer import Save
    from evervec.server.service import Service

    ev.add("note", "long enough to be shortened", id="there")
    ev.set_limits(Limits(records=2))
    drafts = [ev.draft("note", "x", {"id": id}) for id in ("a", "b", "there", "c")]
    service = Service(ev)
    answers = service._save_all([Save("default", "note", draft) for draft in drafts])
    service.close()
    assert [isinstance(a, Exception) for a in answers] == [False, True, False, True]
    assert {record.id for record in ev.records()} == {"a", "there"}


def test_a_batch_ends_at_the_first_record_without_room(quiet: Served, ev: Evervec) -> None:
    ev.set_limits(Limits(records=3))
    lines = "".join(json.dumps(note(str(n))) + "\n" for n in range(6))
    http = quiet.http(quiet.key("default"))
    answer = http.post(
        "/v1/records/batch", content=lines, headers={"content-type": "application/x-ndjson"}
    )
    told = [json.loads(line) for line in answer.text.splitlines()]
    assert [t.get("id") for t in told[:3]] == ["0", "1", "2"]
    assert (told[3]["status"], told[3]["position"]) == (422, 3)
    assert len(ev.records()) == 3


def test_a_kind_too_many_is_refused(quiet: Served, ev: Evervec) -> None:
    ev.set_limits(Limits(kinds=1))
    http = quiet.http(quiet.key("default"))
    assert http.post("/v1/records", json=note("1")).status_code == 202
    refused = http.post("/v1/records", json={"kind": "other", "text": "x"})
    assert refused.status_code == 422
    assert "(tenant_kinds)" in refused.json()["detail"]


def test_a_priority_out_of_range_is_refused(quiet: Served) -> None:
    http = quiet.http(quiet.key())
    for priority in (1001, -1001, 1 << 31):
        assert http.post("/v1/records", json=note("1", priority=priority)).status_code == 422


def test_a_tenant_sees_what_it_has_and_only_an_admin_sets_what_it_may(
    quiet: Served, ev: Evervec
) -> None:
    key = quiet.key("acme")
    writer, admin = quiet.http(key), quiet.http(quiet.key(role="admin"))
    writer.post("/v1/records", json=note("1", "four"))
    path = "/v1/tenants/acme/limits"
    for method in ("GET", "PUT"):
        assert writer.request(method, path, json={"records": 9}).status_code == 403
    done = admin.put(path, json={"records": 5, "weight": 2})
    assert (done.status_code, done.json()["limits"]["weight"]) == (200, 2)
    shown = writer.get("/v1/usage").json()
    assert (shown["tenant"], shown["records"], shown["bytes"]) == ("acme", 1, 4)
    assert shown["limits"]["records"] == 5
    assert admin.get(path).json() == shown
    with Client(quiet.url, key) as client:
        assert client.usage() == ev.of("acme").usage()
    assert admin.get("/v1/usage", params={"tenant": "acme"}).json() == shown
    assert ev.of("acme").limits() == Limits(weight=2, records=5)
    assert admin.put(path, json={}).status_code == 200
    assert ev.of("acme").limits() == Limits()
    for wrong in ({"weight": 0}, {"records": -1}, {"unknown": 1}, {"bytes": 1 << 63}):
        assert admin.put(path, json=wrong).status_code == 422, wrong


def test_metrics_tell_of_usage_by_tenant_for_those_with_limits(quiet: Served, ev: Evervec) -> None:
    for tenant in ("acme", "free"):
        ev.of(tenant).add("note", "x", id="1")
    ev.of("acme").set_limits(Limits(records=5))
    told = quiet.http(quiet.key(role="admin")).get("/metrics").text
    assert 'evervec_tenant_usage{quota="records",tenant="acme"} 1.0' in told
    assert 'evervec_tenant_quota{quota="records",tenant="acme"} 5.0' in told
    assert 'tenant="free"' not in told.split("evervec_http_requests")[0]
    mine = quiet.http(quiet.key("free")).get("/metrics").text
    assert 'evervec_tenant_usage{quota="records",tenant="free"} 1.0' in mine
    assert "acme" not in mine


def test_a_service_knows_the_weight_of_a_tenant_from_its_first_request_on(
    quiet: Served, ev: Evervec
) -> None:
    ev.of("acme").set_limits(Limits(weight=5))
    service = quiet.app.state.service
    for tenant in ("acme", "other"):
        assert quiet.http(quiet.key(tenant)).get("/v1/records").status_code == 200
    until(lambda: service.weights.of("acme") == 5)
    assert service.weights.of("other") == 1
    assert service.pool._weight_of("acme") == service.shares._weight_of("acme") == 5
