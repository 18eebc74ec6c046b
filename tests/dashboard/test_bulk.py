"""Actions on many jobs, after a page that says how many."""

from typing import Any

import pytest

from evervec import Evervec
from evervec.model.jobs import Status
from evervec.server.audit import Audit
from evervec.stores.service_values import AuditChoice
from support.pages import Operator
from support.service import Served
from support.world import add_all


@pytest.fixture
def admin(served: Served) -> Operator:
    return Operator(served)


@pytest.fixture
def mixed(ev: Evervec) -> dict[str, int]:
    """The numbers of jobs by the id of their record: 0 and 1 failed, 2 and 3 pending, 4 done."""
    add_all(ev, "note", "0", "1", "4")
    claimed = {job.record_id: job for job in ev.queue.claim(10)}
    for id in ("0", "1"):
        ev.queue.fail(claimed[id], f"bad {id}", permanent=True)
    ev.queue.finish(claimed["2"])
    ev.add("note", "x", id="10")
    ev.add("note", "x", id="11")
    return {job.record_id: job.job_id for job in ev.queue.jobs()}


def statuses(ev: Evervec) -> dict[str, str]:
    return {job.record_id: str(job.status) for job in ev.queue.jobs()}


def test_a_dry_run_says_how_many_and_changes_nothing(
    ev: Evervec, admin: Operator, mixed: dict[str, int]
) -> None:
    before = statuses(ev)
    everything = admin.read("/ui/jobs/bulk", do="retry", of="matching")
    assert "Retry 2 jobs?" in everything.text
    assert "Nothing has been changed yet" in everything.text
    assert {f"/ui/jobs/{mixed[id]}" for id in ("0", "1")} <= set(everything.links)
    assert f"/ui/jobs/{mixed['10']}" not in everything.links
    one = admin.read("/ui/jobs/bulk", do="retry", of="matching", q='error:"bad 1"')
    assert "Retry 1 job?" in one.text
    chosen = admin.read("/ui/jobs/bulk", do="cancel", id=[mixed["0"], mixed["2"], mixed["10"]])
    assert "2 of 3 selected jobs would be changed: those that are failed or pending" in chosen.text
    none = admin.read("/ui/jobs/bulk", do="retry", id=mixed["10"])
    assert "No job would be changed" in none.text
    assert statuses(ev) == before


def test_all_that_match_are_retried_and_the_filter_stays(
    ev: Evervec, admin: Operator, mixed: dict[str, int]
) -> None:
    back = "/ui/jobs?q=status%3Afailed"
    fields: dict[str, Any] = {"do": "retry", "of": "matching", "q": "status:failed", "back": back}
    answer = admin.send("/ui/jobs/bulk", **fields)
    assert (answer.status_code, answer.headers["location"]) == (303, back)
    assert statuses(ev)["0"] == statuses(ev)["1"] == "pending"
    assert statuses(ev)["2"] == "done"
    said = "No job was retried: none of them is failed any more."
    assert admin.act("/ui/jobs/bulk", **fields) == said
    shown = admin.http.get(admin.send("/ui/jobs/bulk", **fields).headers["location"]).text
    assert f'<p class="notice warn" role="alert">{said}</p>' in shown


def test_only_the_selected_jobs_are_changed(
    ev: Evervec, admin: Operator, mixed: dict[str, int]
) -> None:
    ids = [str(mixed["1"]), str(mixed["2"]), "999999"]
    fields: dict[str, Any] = {"do": "retry", "of": "selected", "id": ids, "q": "status:failed"}
    assert admin.act("/ui/jobs/bulk", **fields) == "1 job was retried."
    assert statuses(ev) == {
        "0": "failed", "1": "pending", "2": "done", "10": "pending", "11": "pending",
    }  # fmt: skip


def test_many_are_cancelled_after_a_typed_confirmation(
    ev: Evervec, admin: Operator, mixed: dict[str, int]
) -> None:
    fields: dict[str, Any] = {"do": "cancel", "of": "matching", "q": "status:pending,failed"}
    for typed in ("", "yes", "CANCEL"):
        assert admin.send("/ui/jobs/bulk", **fields, confirm=typed).status_code == 422
    assert len(statuses(ev)) == 5
    assert admin.act("/ui/jobs/bulk", **fields, confirm="cancel") == "4 jobs were cancelled."
    assert statuses(ev) == {"2": "done"}


def test_the_priority_of_many_is_changed(
    ev: Evervec, admin: Operator, mixed: dict[str, int]
) -> None:
    fields: dict[str, Any] = {"do": "priority", "of": "matching", "q": "status:pending"}
    said = admin.act("/ui/jobs/bulk", **fields, priority="-5")
    assert said == "2 jobs were given a new priority."
    assert {job.priority for job in ev.queue.jobs(status="pending")} == {-5}
    assert {job.priority for job in ev.queue.jobs(status="failed")} == {0}
    assert admin.send("/ui/jobs/bulk", **fields, priority="99999999").status_code == 422


@pytest.mark.parametrize(
    "fields",
    [
        {"do": "drop", "of": "matching"},
        {"do": "retry", "of": "selected"},
        {"do": "retry", "of": "selected", "id": "1; drop"},
        {"do": "retry", "of": "matching", "q": "state:failed"},
        {"do": "retry", "of": "everything"},
    ],
)
def test_a_form_that_makes_no_sense_changes_nothing(
    ev: Evervec, admin: Operator, mixed: dict[str, int], fields: dict[str, Any]
) -> None:
    before = statuses(ev)
    assert admin.send("/ui/jobs/bulk", **fields).status_code == 422
    assert admin.http.get("/ui/jobs/bulk", params=fields).status_code == 422
    assert statuses(ev) == before


def test_a_form_leads_back_to_a_page_of_the_dashboard_only(
    admin: Operator, mixed: dict[str, int]
) -> None:
    for back in ("https://example.com/", "//example.com", "/v1/records", "javascript:alert(1)"):
        fields: dict[str, Any] = {"do": "retry", "of": "matching", "back": back}
        assert admin.send("/ui/jobs/bulk", **fields).headers["location"] == "/"
        shown = admin.read("/ui/jobs/bulk", do="retry", of="matching", back=back)
        assert not [each for each in shown.links if "example.com" in each]


def test_a_form_without_the_sessions_token_is_refused(
    ev: Evervec, admin: Operator, mixed: dict[str, int]
) -> None:
    before = statuses(ev)
    for token in ("", "0" * 64):
        fields: dict[str, Any] = {"do": "retry", "of": "matching", "form_token": token}
        assert admin.send("/ui/jobs/bulk", **fields).status_code == 403
    assert statuses(ev) == before


def test_who_did_what_to_how_many_is_recorded(
    ev: Evervec, served: Served, mixed: dict[str, int]
) -> None:
    writer = Operator(served, served.key(role="writer", agent="ops"))
    writer.act("/ui/jobs/bulk", do="retry", of="matching", q="status:failed")
    entry = Audit(ev.store).list(AuditChoice(), 10)[0]
    assert (entry.agent, entry.action) == ("ops", "jobs.retry")
    assert entry.target == "2 jobs, all that match 'status:failed'"


def test_a_writer_changes_jobs_of_its_tenant_only(ev: Evervec, served: Served) -> None:
    for tenant in ("default", "other"):
        ev.of(tenant).add("note", "a", id=tenant)
    for job in ev.queue.claim(10):
        ev.queue.fail(job, "bad", permanent=True)
    writer = Operator(served, served.key("other", "writer"))
    shown = writer.read("/ui/jobs/bulk", do="retry", of="matching")
    assert "Retry 1 job?" in shown.text
    assert writer.act("/ui/jobs/bulk", do="retry", of="matching") == "1 job was retried."
    assert ev.queue.status("note", "default").status is Status.FAILED  # type: ignore[union-attr]
