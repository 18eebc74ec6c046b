"""Failures, grouped by what they say."""

import re

import pytest

from evervec import Evervec
from evervec.model.jobs import Status
from support.pages import HOSTILE, Operator
from support.service import Served


def fail_all(ev: Evervec, errors: list[str], kind: str = "note") -> None:
    list(ev.add_many(kind, ({"id": n, "text": f"text {n}"} for n in range(len(errors)))))
    for job, error in zip(ev.queue.claim(len(errors)), errors, strict=True):
        ev.queue.fail(job, error, permanent=True)
    ev.queue.recorder.flush()


@pytest.fixture
def admin(served: Served) -> Operator:
    return Operator(served)


def test_failures_that_say_the_same_are_one_group(ev: Evervec, admin: Operator) -> None:
    same = [f"timeout after {seconds} s" for seconds in (30, 31, 2)]
    fail_all(ev, [*same, "model 'a' not found"])
    rows = admin.rows("/ui/failures")
    assert sorted(row["open"] for row in rows) == [1, 3]
    shown = admin.read("/ui/failures")
    assert "failed now 3" in shown.text
    assert "timeout after" in shown.text
    assert shown.text.count("first ") >= 2


def test_a_group_leads_to_its_jobs(ev: Evervec, admin: Operator) -> None:
    fail_all(ev, ["timeout after 30 s", "timeout after 31 s", "no such model"])
    shown = admin.read("/ui/failures")
    found = sorted(
        len(admin.rows(link)) for link in shown.links if re.search(r"jobs\?q=.*group", link)
    )
    assert found == [1, 2]


def test_a_group_is_retried_after_a_dry_run(ev: Evervec, admin: Operator) -> None:
    fail_all(ev, ["timeout after 30 s", "timeout after 31 s", "no such model"])
    (group,) = [row for row in admin.rows("/ui/failures") if row["open"] == 2]
    q = f"status:failed group:{group['fingerprint']}"
    (retry,) = [
        link
        for link in admin.read("/ui/failures").links
        if "do=retry" in link and group["fingerprint"] in link
    ]
    assert "Retry 2 jobs?" in admin.read(retry).text
    said = admin.act("/ui/jobs/bulk", do="retry", of="matching", q=q)
    assert said == "2 jobs were retried."
    left = ev.queue.jobs(status=Status.FAILED)
    assert [job.error for job in left] == ["no such model"]


def test_a_dismissed_group_is_hidden_until_it_fails_again(ev: Evervec, admin: Operator) -> None:
    fail_all(ev, ["timeout after 30 s"])
    (group,) = admin.rows("/ui/failures")
    said = admin.act(f"/ui/failures/{group['fingerprint']}/dismiss")
    assert said.startswith("Dismissed")
    assert admin.rows("/ui/failures") == []
    assert "Nothing has failed that was not dismissed" in admin.read("/ui/failures").text
    (kept,) = admin.rows("/ui/failures", dismissed=1)
    assert kept["dismissed_at"] is not None
    assert len(ev.queue.jobs(status=Status.FAILED)) == 1
    fail_all(ev, ["timeout after 99 s"], kind="note")
    assert len(admin.rows("/ui/failures")) == 1


def test_dismissing_what_does_not_exist_says_so(admin: Operator) -> None:
    assert "no longer exists" in admin.act("/ui/failures/0123abcd/dismiss")
    assert admin.send("/ui/failures/%3Cscript%3E/dismiss").status_code == 422


def test_a_tenant_sees_and_dismisses_its_own_groups_only(ev: Evervec, served: Served) -> None:
    fail_all(ev, ["timeout at https://internal.example"])
    fingerprint = Operator(served).rows("/ui/failures")[0]["fingerprint"]
    other = Operator(served, served.key("other", "writer"))
    assert other.rows("/ui/failures") == []
    assert "no longer exists" in other.act(f"/ui/failures/{fingerprint}/dismiss")
    assert other.get("/ui/failures", tenant="default").status_code == 403
    admin = Operator(served, served.key(role="admin"))
    assert len(admin.rows("/ui/failures")) == 1


def test_a_tenant_does_not_see_what_the_provider_said(ev: Evervec, served: Served) -> None:
    fail_all(ev, ["OpenAI account org-123 at internal.example is closed"])
    writer = Operator(served, served.key(role="writer"))
    for format in ("", "ndjson", "csv"):
        text = writer.get("/ui/failures", **({"format": format} if format else {})).text
        assert "org-123" not in text
        assert "internal.example" not in text
        assert "details are visible with a platform admin" in text


def test_hostile_errors_and_kinds_stay_text(ev: Evervec, admin: Operator) -> None:
    fail_all(ev, [HOSTILE, f"{HOSTILE}\n{HOSTILE}", "x" * 10_000], kind=f"k{HOSTILE}"[:80])
    shown = admin.read("/ui/failures")
    assert "<script>alert(1)</script>" in shown.text
    assert len(admin.get("/ui/failures").text) < 60_000
    for link in shown.links:
        if "/ui/failures?kind=" in link:
            admin.read(link)
