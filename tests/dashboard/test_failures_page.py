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


def fail_two_kinds(ev: Evervec) -> None:
    for kind in ("note", "page"):
        fail_all(ev, ["answered 503 after 30 s", "answered 503 after 31 s"], kind)
    fail_all(ev, ["it is not UTF-8 at position 118"], "file")


def test_one_reason_is_one_card_for_all_its_kinds(ev: Evervec, admin: Operator) -> None:
    fail_two_kinds(ev)
    shown = admin.read("/ui/failures")
    titles = re.findall(r"<h2><bdi>(.*?)</bdi></h2>", admin.get("/ui/failures").text)
    assert titles[0].startswith("answered 503 after 3")
    assert titles[1:] == ["it is not UTF-8 at position 118"]
    assert "failed now 4" in shown.text
    (both,) = [link for link in shown.links if "do=retry" in link and "%2C" in link]
    assert "Retry 4 jobs?" in admin.read(both).text
    listed = [link for link in shown.links if "/ui/jobs?q=" in link]
    assert sorted(len(admin.rows(link)) for link in listed) == [1, 2, 2, 4]


def test_all_groups_of_a_reason_are_dismissed_together(ev: Evervec, admin: Operator) -> None:
    fail_two_kinds(ev)
    shown = admin.read("/ui/failures")
    (together,) = [
        attrs["action"]
        for tag, attrs in shown.tags
        if "-" in attrs.get("action", "").rpartition("/dismiss")[0]
    ]
    assert admin.act(together).startswith("Dismissed: 2 groups are hidden")
    assert [row["kind"] for row in admin.rows("/ui/failures")] == ["file"]
    assert len(ev.queue.jobs(status=Status.FAILED)) == 5
    many = "-".join(f"{n:016x}" for n in range(25))
    assert admin.send(f"/ui/failures/{many}/dismiss").status_code == 422


def test_reasons_that_are_redacted_stay_apart_by_what_they_said(
    ev: Evervec, served: Served
) -> None:
    fail_all(ev, ["the first thing at 10.0.0.7", "the second thing at 10.0.0.8"])
    writer = Operator(served, served.key(role="writer"))
    assert writer.get("/ui/failures").text.count('class="card group"') == 2


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
