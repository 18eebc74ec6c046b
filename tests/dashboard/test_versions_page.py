"""The versions page: a change of the model is watched by all, and made by admins."""

import asyncio
import json
import threading
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from evervec import Evervec
from evervec.errors import DeadlineExceeded, InvalidArgument, StoreError
from evervec.model.reports import MigrationStatus
from evervec.server.audit import Audit
from evervec.server.dashboard.measures import Measures
from evervec.server.dashboard.pages.versions import Counted, _rate
from evervec.server.dashboard.runs import Runs
from evervec.server.problems import Problem
from evervec.stores.service_values import AuditChoice
from support.dashboard import Person, person
from support.pages import HOSTILE, Shown, read
from support.service import Served
from support.world import until

ENDLESS = (
    "with recursive n(i) as (select 1 union all select i + 1 from n where i > 0) "
    "select count(*) from n"
)
STEPS = ("switch", "rollback", "retire", "cancel")
ACTIONS = {f"/ui/versions/{name}" for name in (*STEPS, "begin", "compare")}


@pytest.fixture
def admin(ev: Evervec, served: Served) -> Person:
    list(ev.add_many("note", [{"id": n, "text": f"note {n}"} for n in range(20)]))
    ev.process_all()
    return person(served, served.key(role="admin", agent="ada"))


def page(somebody: Person) -> Shown:
    return read(somebody, "/ui/versions")


def said(somebody: Person, path: str, **fields: Any) -> str:
    """What the page says after an action."""
    answer = somebody.send(path, next="/ui/versions", **fields)
    assert answer.status_code == 303, answer.text
    return Shown(somebody.get(answer.headers["location"]).text).text


def begun(ev: Evervec, admin: Person) -> None:
    said(admin, "/ui/versions/begin", embedder="hashing:64", version="next", do="begin")
    until(ev, lambda: ev.migration() is not None)


def test_a_model_is_changed_and_changed_back(ev: Evervec, admin: Person) -> None:
    assert "20" in page(admin).text
    assert page(admin).actions & ACTIONS == {"/ui/versions/begin"}
    begun(ev, admin)
    shown = page(admin)
    assert "Building next" in shown.text
    offered = {f"/ui/versions/{name}" for name in ("switch", "cancel", "compare", "begin")}
    assert shown.actions & ACTIONS == offered
    ev.process_all()
    text = said(admin, "/ui/versions/switch", version="next", confirm="next")
    assert "next serves all searches now" in text
    assert ev.search("note 7", mode="semantic").version == "next"
    offered = {f"/ui/versions/{name}" for name in ("rollback", "retire", "compare", "begin")}
    assert page(admin).actions & ACTIONS == offered
    said(admin, "/ui/versions/rollback", version="next", confirm="next")
    assert ev.search("note 7", mode="semantic").version == "hashing-256"
    assert "Rolled back from next" in page(admin).text
    said(admin, "/ui/versions/switch", version="next", confirm="next")
    said(admin, "/ui/versions/retire", version="next", confirm="next")
    assert ev.migration() is None
    audited = [entry.action for entry in Audit(ev.store).list(AuditChoice())]
    assert audited == [
        "migration.retire", "migration.switch", "migration.rollback", "migration.switch",
        "migration.begin", "session.begin",
    ]  # fmt: skip


def test_a_change_is_cancelled(ev: Evervec, admin: Person) -> None:
    begun(ev, admin)
    assert "is given up" in said(admin, "/ui/versions/cancel", version="next", confirm="next")
    assert ev.migration() is None


def test_what_fails_with_both_models_does_not_hold_up_the_switch(
    ev: Evervec, admin: Person
) -> None:
    list(ev.add_many("note", [{"id": n, "text": f"another {n}"} for n in (100, 101)]))
    for job in ev.queue.claim(10):
        ev.queue.fail(job, "no such model", permanent=True)
    begun(ev, admin)
    while ev._lifecycle.step():
        pass
    for job in ev.queue.claim(100):
        if int(job.record_id) >= 100:
            ev.queue.fail(job, "no such model", permanent=True)
        else:
            ev.queue.release(job)
    ev.process_all()
    until(ev, lambda: "the switch loses nothing" in page(admin).text)
    text = page(admin).text
    assert "2 records fail with both models" in text
    assert "Still lacks 0 records that the old version has" in text
    assert "Time left none" in text
    assert "retry them before the switch" not in text


def test_the_versions_can_be_downloaded(admin: Person) -> None:
    (row,) = admin.get("/ui/versions", format="ndjson").text.splitlines()
    assert json.loads(row)["kind"] == "note"
    assert admin.get("/ui/versions", format="csv").text.startswith("kind,name,model,")


def test_an_incomplete_version_is_switched_to_only_by_force(ev: Evervec, admin: Person) -> None:
    begun(ev, admin)
    refused = admin.send("/ui/versions/switch", version="next", confirm="next")
    assert refused.status_code == 409
    assert ev.search("note 7", mode="semantic").version == "hashing-256"
    said(admin, "/ui/versions/switch", version="next", confirm="next", force="yes")
    assert ev.search("note 7", mode="semantic").version == "next"


@pytest.mark.parametrize("step", STEPS)
def test_nothing_is_done_without_the_typed_name(ev: Evervec, admin: Person, step: str) -> None:
    begun(ev, admin)
    typed: list[dict[str, Any]] = [{}, {"confirm": "Next"}, {"confirm": "hashing-256"}]
    for fields in typed:
        assert admin.send(f"/ui/versions/{step}", version="next", **fields).status_code == 422
    stale = admin.send(f"/ui/versions/{step}", version="older", confirm="older")
    assert stale.status_code == 409
    assert ev.migration() is not None
    assert {v.state for v in ev.versions()} == {"serving", "building"}


def test_a_cost_is_estimated_before_anything_begins(ev: Evervec, admin: Person) -> None:
    said_ = admin.send("/ui/versions/begin", embedder="hashing:64", do="estimate")
    assert said_.status_code == 303
    until(ev, lambda: "Estimate for hashing:64" in page(admin).text)
    assert ev.migration() is None


def test_two_versions_are_compared_in_the_background(ev: Evervec, admin: Person) -> None:
    begun(ev, admin)
    ev.process_all()
    admin.send("/ui/versions/compare", version="next")
    until(ev, lambda: "of the best 10 hits are the same" in page(admin).text)
    assert "its vectors are those of the records" in page(admin).text


def test_work_that_takes_long_blocks_no_request(
    ev: Evervec, admin: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()

    def slowly(*args: object, **kwargs: object) -> None:
        go.wait(60)
        raise InvalidArgument(f"no such model {HOSTILE}")

    monkeypatch.setattr("evervec.facade.evervec.open_embedder", slowly)
    text = said(admin, "/ui/versions/begin", embedder=HOSTILE, do="begin")
    assert "The model is being opened" in text
    assert "Opening the model <script>" in page(admin).text
    again = admin.send("/ui/versions/begin", embedder="hashing:64", do="begin")
    assert again.status_code == 409
    go.set()
    until(ev, lambda: "failed" in page(admin).text)
    assert "no such model <script>" in page(admin).text
    # nothing was changed
    assert [e.action for e in Audit(ev.store).list(AuditChoice())] == ["session.begin"]


@pytest.mark.parametrize("embedder", ["", "unknown:model", "noop"])
def test_a_model_that_cannot_be_used_is_refused(admin: Person, embedder: str) -> None:
    answer = admin.send("/ui/versions/begin", embedder=embedder, do="begin")
    assert answer.status_code in (422, 503), answer.text


@pytest.mark.parametrize("role", ["reader", "writer"])
def test_others_watch_and_change_nothing(
    ev: Evervec, admin: Person, served: Served, role: str
) -> None:
    begun(ev, admin)
    somebody = person(served, served.key(role=role))
    shown = page(somebody)
    assert not shown.actions & ACTIONS
    assert "building" in shown.text
    for path in sorted(ACTIONS):
        fields: dict[str, Any] = {"version": "next", "confirm": "next", "embedder": "hashing:32"}
        assert somebody.send(path, **fields).status_code == 403
    assert ev.migration() is not None


def test_a_tenant_sees_its_own_kinds_and_counts(ev: Evervec, admin: Person, served: Served) -> None:
    ev.of("other").add("secret", "theirs", id="1")
    ev.of("other").add("note", "theirs too", id="1")
    ev.process_all()
    mine, theirs = (person(served, served.key(tenant)) for tenant in ("default", "other"))
    assert "secret" not in page(mine).text
    rows = [row.split() for row in page(theirs).text.split("hashing-256")]
    assert "secret" in page(theirs).text
    assert rows
    assert "21" in page(admin).text  # of all tenants
    until(ev, lambda: " 20 " in page(mine).text)
    assert " 21 " not in page(mine).text
    assert mine.get("/ui/versions", tenant="other").status_code == 403
    assert "secret" in read(admin, "/ui/versions", tenant="other").text


def test_hostile_names_stay_texts(ev: Evervec, served: Served) -> None:
    ev.add(HOSTILE, "tea", id="1")
    ev.process_all()
    ev.migrate("hashing:64", version=HOSTILE[:60])
    assert "<script>" in page(person(served)).text


def test_an_empty_store_has_no_versions(served: Served) -> None:
    assert "There are no versions yet" in page(person(served)).text


def test_the_rate_is_known_after_a_while() -> None:
    assert _rate([]) is None
    assert _rate([(0.0, 10), (1.0, 20)]) is None
    assert _rate([(0.0, 10), (5.0, 35), (10.0, 110)]) == 10.0
    assert _rate([(0.0, 10), (10.0, 5)]) == 0.0
    status = MigrationStatus("v", "building", ("a",), 10, 1, 2, 0, 9, True, False)
    assert Counted([], status).status is status


# counts that take long
def test_a_count_is_shared_and_rests() -> None:
    now, counted = [0.0], []

    def count() -> int:
        counted.append(now[0])
        return len(counted)

    async def look() -> None:
        measures = Measures(clock=lambda: now[0], patience=60)
        first = await asyncio.gather(*(measures.read("a", count) for _ in range(20)))
        assert [results[-1].value for results in first] == [1] * 20
        now[0] = 1.0
        assert (await measures.read("a", count))[-1].value == 1
        now[0] = 2.5
        assert [each.value for each in await measures.read("a", count)] == [1, 2]
        measures.renew("a")
        assert (await measures.read("a", count))[-1].value == 3
        now[0] = 1000.0
        assert [each.value for each in await measures.read("a", count)] == [4]

    asyncio.run(look())


def test_a_long_count_holds_nobody_back() -> None:
    go = threading.Event()

    async def look() -> None:
        measures = Measures(patience=0.0)
        assert await measures.read("a", lambda: go.wait(60)) == []
        assert await measures.read("a", lambda: go.wait(60)) == []
        go.set()
        while not await measures.read("a", lambda: True):
            await asyncio.sleep(0)

    asyncio.run(look())


def test_a_count_and_a_run_end_in_time_in_the_engine_too(ev: Evervec) -> None:
    def count() -> object:
        with ev.store.db.reading() as conn:  # type: ignore[attr-defined]
            return conn.execute(ENDLESS).fetchall()

    async def look() -> None:
        with pytest.raises(DeadlineExceeded):
            await Measures(patience=60, seconds=0.1).read("a", count)
        runs: Any = Runs(seconds=0.1)
        with suppress(Problem):
            await runs.start(SimpleNamespace(caller=SimpleNamespace(agent="a")), "a", "", count)
        run = runs.get("a")
        await run.ended.wait()
        assert run.problem.status_code == 504

    asyncio.run(look())


def test_the_error_of_a_first_count_is_raised_and_later_ones_keep_the_last_result() -> None:
    now, answers = [0.0], [StoreError("away"), 1, StoreError("away")]

    def count() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def look() -> None:
        measures = Measures(clock=lambda: now[0], patience=60)
        with pytest.raises(StoreError):
            await measures.read("a", count)
        for now[0] in (10.0, 20.0):
            assert [each.value for each in await measures.read("a", count)] == [1]

    asyncio.run(look())
