"""Who may do what: keys, roles, tenants; and who may ask while there are no keys."""

import threading
from datetime import timedelta
from typing import Any

import httpx
import pytest

from evervec import Evervec
from evervec.server.keys import Keys
from support.service import Serve, Served
from support.world import fail_for_good

CHANGES: list[tuple[str, str, Any]] = [
    ("POST", "/v1/records", {"kind": "note", "id": "1", "text": "changed"}),
    ("POST", "/v1/records/batch", None),
    ("DELETE", "/v1/records/note/1", None),
    ("POST", "/v1/records/delete", {"filter": {"a": None}}),
    ("POST", "/v1/jobs/{job}/retry", None),
    ("POST", "/v1/jobs/{job}/cancel", None),
    ("PATCH", "/v1/jobs/{job}", {"priority": 9}),
    ("GET", "/v1/jobs/{job}/content", None),
    ("POST", "/v1/queue/retry-failed", {}),
    ("POST", "/v1/queue/recover-stuck", {}),
    ("POST", "/v1/queue/purge", {"status": "failed", "older_than": 0}),
    ("POST", "/v1/queue/pause", None),
    ("POST", "/v1/queue/resume", None),
    ("POST", "/v1/verify", {"repair": True}),
    ("POST", "/v1/migrations", {"embedder": "hashing:64"}),
    ("POST", "/v1/migrations/cancel", None),
    ("PUT", "/v1/tenants/default/limits", {"records": 1}),
]
READS = [
    "/v1/records", "/v1/records/note/1", "/v1/records/note/1/history", "/v1/jobs",
    "/v1/jobs/{job}", "/v1/queue/stats", "/v1/versions", "/v1/usage", "/metrics",
]  # fmt: skip


@pytest.fixture
def quiet(ev: Evervec, serve: Serve) -> Served:
    """A service without a worker."""
    return serve(ev)


def test_nothing_but_open_paths_is_answered_without_a_key(quiet: Served, ev: Evervec) -> None:
    quiet.key()
    for key in (None, "nonsense", "ev_000000000000_" + "x" * 43):
        http = quiet.http(key)
        for path in READS:
            answered = http.get(path.format(job=1))
            assert answered.status_code == 401, path
            assert answered.headers["www-authenticate"].startswith("Bearer")
        for method, path, body in CHANGES:
            assert http.request(method, path.format(job=1), json=body).status_code == 401, path
        for path in ("/healthz", "/readyz", "/docs", "/openapi.json"):
            assert http.get(path).status_code == 200
    assert ev.records() == []


def test_a_readers_key_reads_everything_and_changes_nothing(quiet: Served, ev: Evervec) -> None:
    ev.add("note", "as it was", id="1")
    job = fail_for_good(ev, "1").job_id
    http = quiet.http(quiet.key(role="reader"))
    for path in READS:
        assert http.get(path.format(job=job)).status_code == 200, path
    assert http.post("/v1/search", json={"query": "was"}).json()["hits"]
    assert http.post("/v1/verify", json={}).status_code == 200
    before = (ev.records(), ev.queue.jobs(), ev.queue.history("note", "1"))
    for method, path, body in CHANGES:
        answered = http.request(method, path.format(job=job), json=body)
        assert answered.status_code == 403, path
        assert "key" in answered.json()["detail"]
    assert (ev.records(), ev.queue.jobs(), ev.queue.history("note", "1")) == before
    assert not ev.store.jobs.paused()


def test_a_revoked_or_expired_key_is_refused_at_once(quiet: Served, ev: Evervec) -> None:
    keys = Keys(ev.store)
    made = keys.create("default", "a", "reader")
    short = keys.create("default", "a", "reader", timedelta(milliseconds=1))
    http = quiet.http(made.key)
    assert http.get("/v1/records").status_code == 200
    keys.revoke(made.info.id)
    assert http.get("/v1/records").status_code == 401
    assert quiet.http(short.key).get("/v1/records").status_code == 401
    assert quiet.http().get("/v1/records").status_code == 401  # not open again


def test_the_last_use_of_a_key_is_noted(ev: Evervec, serve: Serve) -> None:
    served = serve(ev)
    assert served.http(served.key(role="reader")).get("/v1/records").status_code == 200
    served.app.state.service.save_key_uses()
    (key,) = Keys(ev.store).list()
    assert key.last_used_at is not None
    assert key.last_used_at >= key.created_at


def test_a_writer_works_in_its_tenant_alone(quiet: Served, ev: Evervec) -> None:
    job = ev.add("note", "not theirs", id="1").job_id
    http = quiet.http(quiet.key("other", "writer"))
    assert http.get(f"/v1/jobs/{job}").status_code == 404
    assert http.get(f"/v1/jobs/{job}/content").status_code == 404
    assert http.post(f"/v1/jobs/{job}/cancel").status_code == 404
    assert http.patch(f"/v1/jobs/{job}", json={"priority": 1}).status_code == 404
    assert http.delete("/v1/records/note/1").status_code == 404
    for path in ("/v1/records", "/v1/jobs", "/v1/queue/stats"):
        assert http.get(path, params={"tenant": "default"}).status_code == 403
        assert http.get(path, params={"tenant": "other"}).status_code == 200
    for path in ("/v1/queue/pause", "/v1/queue/resume"):
        assert http.post(path, params={"tenant": "default"}).status_code == 403
    assert ev.get("note", "1") is not None


def test_a_writer_pauses_its_own_tenant_and_all_others_go_on(quiet: Served, ev: Evervec) -> None:
    ev.add("note", "one", id="1")
    ev.of("other").add("note", "two", id="2")
    http, admin = quiet.http(quiet.key("other", "writer")), quiet.http(quiet.key(role="admin"))
    assert http.post("/v1/queue/pause").json() == {"paused": True}
    assert http.get("/v1/queue/stats").json()["paused_tenants"] == ["other"]
    assert "\nevervec_paused 1.0" in http.get("/metrics").text
    assert ev.process_all().processed == 1
    assert (ev.queue.stats().pending, ev.of("other").queue.stats().pending) == (0, 1)
    assert not ev.queue.stats().paused
    seen = admin.get("/v1/queue/stats").json()
    assert (seen["paused"], seen["paused_tenants"]) == (False, ["other"])
    told = admin.get("/metrics").text
    assert "\nevervec_paused 0.0" in told
    assert "\nevervec_paused_tenants 1.0" in told
    admin.post("/v1/queue/pause")
    assert http.post("/v1/queue/resume").json() == {"paused": True}  # all are
    assert admin.post("/v1/queue/resume").json() == {"paused": False}
    assert ev.process_all().processed == 1
    assert admin.post("/v1/queue/pause?tenant=other").json() == {"paused": True}
    assert not ev.store.jobs.paused()
    assert ev.store.jobs.paused("other")


def test_a_platform_admin_sees_all_tenants_or_one(quiet: Served, ev: Evervec) -> None:
    ev.add("note", "one", id="1")
    ev.of("other").add("note", "two", id="2")
    http = quiet.http(quiet.key("platform", "admin"))
    assert http.get("/v1/queue/stats").json()["pending"] == 2
    assert http.get("/v1/queue/stats?tenant=other").json()["pending"] == 1
    assert [job["tenant"] for job in http.get("/v1/jobs").json()["jobs"]] == ["default", "other"]
    (record,) = http.get("/v1/records?tenant=other").json()["records"]
    assert record["id"] == "2"
    assert http.post("/v1/verify").json()["waiting"] == 2
    assert http.post("/v1/queue/pause").json() == {"paused": True}
    assert ev.store.jobs.paused()
    assert http.post("/v1/queue/resume").json() == {"paused": False}


def test_without_keys_the_machine_itself_may_do_everything(quiet: Served, ev: Evervec) -> None:
    http = quiet.http()
    assert http.post("/v1/records", json={"kind": "n", "text": "x"}).status_code == 202
    for rebound in ("evil.example", "127.0.0.1.evil.example", "[", ""):
        assert http.get("/v1/records", headers={"Host": rebound}).status_code == 403
    for page in ("https://evil.example", "null", "http://["):
        assert http.get("/v1/records", headers={"Origin": page}).status_code == 403
    here = {"Host": "localhost:8080", "Origin": "http://localhost:8080"}
    assert http.get("/v1/records", headers=here).status_code == 200
    quiet.key()
    assert http.get("/v1/records").status_code == 401


WORDS = {"red": "crimson scarlet ruby", "blue": "azure navy cobalt"}


def test_two_tenants_with_the_same_ids_never_meet(served: Served, ev: Evervec) -> None:
    """Both write, search, list and count the same ids at once; each sees its own alone."""
    leaks: list[str] = []
    writers = {tenant: served.key(tenant) for tenant in WORDS}
    limiter = served.app.state.service.limiter
    limiter.rate = limiter.burst = 1_000_000

    def hammer(tenant: str) -> None:
        http = served.http(writers[tenant])
        others = [word for name, text in WORDS.items() if name != tenant for word in text.split()]

        def look(what: str, answered: httpx.Response) -> None:
            assert answered.status_code < 500, answered.text
            text = answered.text
            if any(word in text for word in others) or '"tenant":"' in text.replace(
                f'"tenant":"{tenant}"', ""
            ):
                leaks.append(f"{tenant} {what}: {text[:300]}")

        for turn in range(6):
            for n in range(4):
                body = {
                    "kind": "note", "id": str(n), "text": f"{WORDS[tenant]} {turn}",
                    "metadata": {"owner": tenant},
                }  # fmt: skip
                ticket = http.post("/v1/records", json=body)
                look("add", ticket)
                look("get", http.get(f"/v1/records/note/{n}"))
                look("history", http.get(f"/v1/records/note/{n}/history"))
                job = ticket.json()["job_id"]
                for near in (job - 2, job - 1, job, job + 1, job + 2):
                    look("job", http.get(f"/v1/jobs/{near}"))
            for query in ("crimson azure", "navy ruby cobalt scarlet", "note tenant red blue"):
                for mode in ("hybrid", "semantic", "text"):
                    asked = {"query": query, "mode": mode, "k": 50}
                    found = http.post("/v1/search", json=asked)
                    look("search", found)
                    if len(found.json()["hits"]) > 4:
                        leaks.append(f"{tenant} counts {found.text}")
            for other in WORDS:
                owned = {"query": "crimson azure", "filter": {"owner": other}}
                found = http.post("/v1/search", json=owned)
                look("filter", found)
                if other != tenant and found.json()["hits"]:
                    leaks.append(f"{tenant} filter {found.text}")
            look("list", http.get("/v1/records?limit=100"))
            look("jobs", http.get("/v1/jobs?limit=100"))
            look("metrics", http.get("/metrics"))
            stats = http.get("/v1/queue/stats").json()
            total = sum(stats[s] for s in ("pending", "processing", "done", "failed"))
            if total > 4 or stats["unique_records"] > 4:
                leaks.append(f"{tenant} stats {stats}")
            versions = http.get("/v1/versions").json()["versions"]
            leaks.extend(f"{tenant} versions {v}" for v in versions if v["items"] > 4)
            if http.post("/v1/verify").json()["checked"] > 4:
                leaks.append(f"{tenant} verify")
            look("error", http.post("/v1/records", json={"kind": "note", "id": "0"}))
            look("error", http.get("/v1/records?tenant=" + others[0]))

    threads = [threading.Thread(target=hammer, args=(name,)) for name in WORDS for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert leaks == []


def test_metrics_are_the_tenants_own(quiet: Served, ev: Evervec) -> None:
    ev.add("note", "one", id="1")
    mine, other = quiet.key(), quiet.key("other", "reader")
    quiet.http(mine).get("/v1/records")
    seen = quiet.http(other).get("/metrics").text
    assert 'evervec_jobs{status="pending"} 0.0' in seen
    assert "default" not in seen
    assert "limiter" not in seen
    assert 'evervec_jobs{status="pending"} 1.0' in quiet.http(mine).get("/metrics").text
