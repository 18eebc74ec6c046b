"""The list of jobs and the page of one job."""

from typing import Any

import pytest

from evervec import Evervec
from evervec.model.jobs import Status
from support.pages import HOSTILE, Operator
from support.service import Served
from support.world import add_all, fail_for_good, job_of


@pytest.fixture
def admin(served: Served) -> Operator:
    return Operator(served)


def test_the_list_shows_jobs_newest_first_and_goes_on_by_their_numbers(
    ev: Evervec, admin: Operator
) -> None:
    add_all(ev, "note", *(f"text {n}" for n in range(120)))
    seen: list[int] = []
    path: str | None = "/ui/jobs"
    while path:
        answer = admin.get(path)
        shown = admin.read(path)
        page = [int(a["value"]) for t, a in shown.tags if t == "input" and a.get("name") == "id"]
        assert page
        seen += page
        more = [attrs["href"] for tag, attrs in shown.tags if attrs.get("rel") == "next"]
        path = more[0] if more else None
        assert len(answer.text) < 200_000
    assert len(seen) == len(set(seen)) == 120
    assert seen == sorted(seen, reverse=True)


def test_a_filter_in_the_address_selects_and_stays_in_every_link(
    ev: Evervec, admin: Operator
) -> None:
    add_all(ev, "note", "a", "b", "c")
    ev.add("task", "d", id="d")
    fail_for_good(ev, "1")
    assert [row["record_id"] for row in admin.rows("/ui/jobs", q="status:failed")] == ["1"]
    assert [row["record_id"] for row in admin.rows("/ui/jobs", q="kind:task")] == ["d"]
    assert [row["record_id"] for row in admin.rows("/ui/jobs", q='error:"is bad"')] == ["1"]
    assert admin.rows("/ui/jobs", q="status:failed kind:task") == []
    shown = admin.read("/ui/jobs", q="status:failed kind:note")
    assert "/ui/jobs?q=status%3Adone+kind%3Anote" in shown.links
    assert "token" not in admin.rows("/ui/jobs")[0]


def test_a_filter_that_cannot_be_read_is_explained_beside_the_bar(admin: Operator) -> None:
    shown = admin.read("/ui/jobs", status=422, q=f"state:x {HOSTILE.replace(' ', '')}")
    assert "unknown qualifier 'state': use status" in shown.text
    (bar,) = [attrs for tag, attrs in shown.tags if attrs.get("id") == "q"]
    assert bar["value"].startswith("state:x <script>")
    refused = admin.get("/ui/jobs", q="state:x", format="csv")
    assert refused.status_code == 422


def test_an_empty_list_says_why(ev: Evervec, admin: Operator) -> None:
    assert "There are no jobs" in admin.read("/ui/jobs").text
    ev.add("note", "a", id="1")
    assert "No job matches" in admin.read("/ui/jobs", q="status:failed").text


def test_only_actions_that_fit_the_shown_jobs_are_offered(ev: Evervec, admin: Operator) -> None:
    add_all(ev, "note", "a", "b")
    assert admin.read("/ui/jobs").buttons == {"cancel", "priority"}
    fail_for_good(ev, "0")
    assert admin.read("/ui/jobs", q="status:failed").buttons == {"retry", "cancel"}
    ev.process_all()
    assert admin.read("/ui/jobs", q="status:done").buttons == set()


def test_readers_see_jobs_and_no_way_to_change_them(ev: Evervec, served: Served) -> None:
    ev.add("note", "a", id="1")
    job = fail_for_good(ev, "1").job_id
    reader = Operator(served, served.key(role="reader"))
    for path in ("/ui/jobs", f"/ui/jobs/{job}", "/ui/failures", "/ui/workers"):
        shown = reader.read(path)
        assert shown.buttons == set()
        assert shown.actions == {"/ui/theme", "/ui/sign-out"}
        assert not [attrs for tag, attrs in shown.tags if attrs.get("type") == "checkbox"]
    assert "Content" not in reader.read(f"/ui/jobs/{job}").text
    assert reader.get("/ui/jobs/bulk", do="retry", id=job).status_code == 403
    forms: list[tuple[str, dict[str, Any]]] = [
        (f"/ui/jobs/{job}/retry", {}),
        (f"/ui/jobs/{job}/priority", {"priority": "3"}),
        ("/ui/jobs/bulk", {"do": "retry", "of": "matching"}),
        ("/ui/failures/abc/dismiss", {}),
        ("/ui/queue/pause", {}),
        ("/ui/queue/resume", {}),
        ("/ui/workers/pause", {"worker": "w"}),
        ("/ui/workers/resume", {"worker": "w"}),
        ("/ui/provider/probe", {}),
    ]
    for path, fields in forms:
        assert reader.send(path, **fields).status_code == 403, path
    assert job_of(ev, "1").status is Status.FAILED
    assert not ev.store.jobs.paused()


def test_what_a_provider_said_is_shown_to_admins_only(ev: Evervec, served: Served) -> None:
    ev.add("note", "a", id="1")
    job = fail_for_good(ev, "1").job_id
    writer = Operator(served, served.key(role="writer"))
    admin = Operator(served, served.key(role="admin"))
    for path in ("/ui/jobs", f"/ui/jobs/{job}"):
        assert "it is bad" in admin.read(path).text
        assert "it is bad" not in writer.get(path).text
        assert ev.queue.worker not in writer.get(path).text
    (row,) = writer.rows("/ui/jobs")
    assert row["worker"].startswith("worker-")
    assert "unknown qualifier 'error'" in writer.read("/ui/jobs", status=422, q="error:bad").text


def test_another_tenants_jobs_do_not_exist(ev: Evervec, served: Served) -> None:
    ev.add("secretkind", "theirs", id="1")
    job = fail_for_good(ev, "1", "secretkind").job_id
    other = Operator(served, served.key("other", "writer"))
    assert other.get(f"/ui/jobs/{job}").status_code == 404
    assert other.rows("/ui/jobs") == []
    assert "secretkind" not in other.get("/ui/jobs").text
    assert other.get("/ui/jobs", tenant="default").status_code == 403
    assert other.send(f"/ui/jobs/{job}/retry").status_code == 404
    assert other.send(f"/ui/jobs/{job}/priority", priority="5").status_code == 404
    for of in ("selected", "matching"):
        fields: dict[str, Any] = {"do": "cancel", "of": of, "id": str(job), "confirm": "cancel"}
        assert other.act("/ui/jobs/bulk", **fields).startswith("No job was cancelled")
    assert job_of(ev, "1", "secretkind").status is Status.FAILED


def test_an_admin_limits_the_pages_to_one_tenant(ev: Evervec, served: Served) -> None:
    ev.add("note", "mine", id="mine")
    ev.of("other").add("note", "theirs", id="theirs")
    admin = Operator(served, served.key(role="admin"))
    assert {row["tenant"] for row in admin.rows("/ui/jobs")} == {"default", "other"}
    assert {row["tenant"] for row in admin.rows("/ui/jobs", tenant="other")} == {"other"}
    shown = admin.read("/ui/jobs", tenant="other")
    links = [each for each in shown.links if each.startswith("/ui/jobs")]
    assert links
    assert all("tenant=other" in each for each in links if each != "/ui/jobs")


def test_a_job_tells_its_way_in_order(ev: Evervec, admin: Operator) -> None:
    job = ev.add("note", "hello", id="1").job_id
    assert "Waits" in admin.read(f"/ui/jobs/{job}").text
    ev.process_all()
    text = admin.read(f"/ui/jobs/{job}").text
    places = [text.index(word) for word in ("Saved", "Claimed", "Embedded", "Searchable")]
    assert places == sorted(places)
    assert " ms" in text[places[0] :]
    assert "hello" in text


def test_a_job_offers_what_fits_its_state(ev: Evervec, admin: Operator) -> None:
    job = ev.add("note", "a", id="1").job_id
    path = f"/ui/jobs/{job}"
    assert f"{path}/retry" not in admin.read(path).actions
    assert f"{path}/priority" in admin.read(path).actions
    fail_for_good(ev, "1")
    assert f"{path}/retry" in admin.read(path).actions
    assert admin.act(f"{path}/retry", next=path) == f"Job {job} will be tried again."
    assert job_of(ev, "1").status is Status.PENDING
    assert admin.act(f"{path}/priority", priority="7") == f"Job {job} has the priority 7 now."
    assert job_of(ev, "1").priority == 7
    ev.process_all()
    assert admin.read(path).actions == {"/ui/theme"}
    assert admin.send(f"{path}/retry").status_code == 409
    # it was done between the page and the form
    headers = {"Referer": f"{admin.http.base_url}{path}"}
    late = admin.send(f"{path}/priority", headers, priority="9")
    assert late.status_code == 409
    assert "only a pending job can be given a new priority" in late.text
    assert f'href="{path}">Back to the page</a>' in late.text
    assert job_of(ev, "1").priority == 7


def test_a_priority_must_be_a_number_in_its_range(ev: Evervec, admin: Operator) -> None:
    job = ev.add("note", "a", id="1").job_id
    for given in ("", "high", "99999999999", "1.5"):
        assert admin.send(f"/ui/jobs/{job}/priority", priority=given).status_code == 422
    assert job_of(ev, "1").priority == 0


def test_a_job_that_is_gone_is_a_page_that_says_so(admin: Operator) -> None:
    assert "does not exist" in admin.read("/ui/jobs/77", status=404).text
    admin.read("/ui/jobs/notanumber", status=422)
    admin.read(f"/ui/jobs/{1 << 63}", status=422)


def test_hostile_text_stays_text_on_every_page(ev: Evervec, admin: Operator) -> None:
    kind, id = f"k{HOSTILE}"[:60], HOSTILE
    ev.add(kind, HOSTILE * 50, id=id, title=HOSTILE, metadata={HOSTILE: HOSTILE})
    (job,) = ev.queue.claim(1)
    ev.queue.fail(job, HOSTILE * 100, permanent=True)
    shown = admin.read(f"/ui/jobs/{job.job_id}")
    assert "<script>alert(1)</script>" in shown.text
    admin.read("/ui/jobs")
    admin.read("/ui/jobs", q="status:failed")
    admin.read("/ui/failures")
    admin.read("/ui/jobs/bulk", do="cancel", id=job.job_id)
    admin.read("/ui/jobs/bulk", do="retry", of="matching", q="status:failed")
    assert admin.get("/ui/jobs", format="csv").status_code == 200
