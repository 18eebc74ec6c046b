"""Verify: run beside requests, watched, cancelled, repaired cell by cell, by those who may."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from evervec import Evervec, StoreError
from evervec.model.findings import VerifyReport
from evervec.model.verification import VerifyRun
from evervec.server.verification import LOST_SECONDS, Verifications
from evervec.stores import notes
from support.dashboard import Person, person
from support.held_verify import Held
from support.processes import until
from support.service import Serve, Served

RUN, REPAIR, CANCEL = "/ui/verify/run", "/ui/verify/repair", "/ui/verify/cancel"


def wound(ev: Evervec) -> None:
    """Records whose vectors are missing, of two kinds, and one whose text is another."""
    for n in range(6):
        ev.add("note", f"note {n}", id=str(n))
        ev.add("page", f"page {n}", id=str(n))
    ev.process_all()
    for collection in ev.store.versions.collections():
        points = ev.index.held(collection.version, ev.tenant, 0, None)
        ev.index.remove(collection.version, points[:2])


def state(served: Served, scope: str | None) -> VerifyRun | None:
    verifications: Verifications = served.app.state.service.verifications
    return verifications.read(scope).run


def ended(served: Served, scope: str | None) -> VerifyRun:
    def over() -> bool:
        run = state(served, scope)
        return run is not None and run.over

    until(over, "the verification to end")
    run = state(served, scope)
    assert run is not None
    return run


@pytest.fixture
def writer(served: Served) -> Person:
    return person(served, served.key("default", "writer"))


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    made = Held(monkeypatch)
    yield made
    made.go_on.set()


def test_an_empty_page_says_what_to_press(served: Served, writer: Person) -> None:
    page = writer.get("/ui/verify").text
    assert "Nothing was verified here yet" in page
    assert "Press <strong>Verify</strong>" in page


def test_a_run_shows_faults_by_kind_with_who_and_when(served: Served, ev: Evervec) -> None:
    wound(ev)
    writer = person(served, served.key("default", "writer", "carla"))
    answer = writer.send(RUN, next="/ui/verify")
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/verify")
    run = ended(served, "default")
    assert (run.state, run.agent, run.checked, run.total) == ("done", "carla", 12, 12)
    page = writer.get("/ui/verify").text
    assert "What is wrong" in page
    assert page.count(">Repair</button>") == 2
    assert "by <bdi>carla</bdi>" in page
    rows = writer.get("/ui/verify", format="ndjson").text.splitlines()
    assert {row["kind"]: row["missing"] for row in map(json.loads, rows)} == {"note": 2, "page": 2}


def test_a_cell_is_repaired_alone(served: Served, ev: Evervec, writer: Person) -> None:
    wound(ev)
    writer.send(RUN)
    ended(served, "default")
    writer.send(REPAIR, kind="note", fault="missing")
    run = ended(served, "default")
    assert (run.state, run.repaired, run.kind, run.faults) == ("done", 2, "note", ("missing",))
    page = writer.get("/ui/verify").text
    assert "2 repaired" in page
    assert page.count(">Repair</button>") == 1, "only of the other kind"
    ev.process_all()
    left = {tally.kind: tally.missing for tally in ev.verify().by}
    assert left == {"note": 0, "page": 2}


def test_records_that_failed_are_not_to_be_repaired_but_to_be_looked_at(
    served: Served, ev: Evervec, writer: Person
) -> None:
    for n in range(3):
        ev.add("note", f"note {n}", id=str(n))
    for job in ev.queue.claim(3):
        ev.queue.fail(job, "no such model", permanent=True)
    writer.send(RUN)
    ended(served, "default")
    page = writer.get("/ui/verify").text
    assert ">Repair</button>" not in page
    assert 'href="/ui/failures?kind=note" title="their jobs are dead letters">failed</a>' in page


def test_checks_of_two_versions_are_not_called_records(
    served: Served, ev: Evervec, writer: Person
) -> None:
    ev.add("note", "tea", id="1")
    ev.process_all()
    writer.send(RUN)
    ended(served, "default")
    assert "<dd>1 record in " in writer.get("/ui/verify").text
    ev.migrate("hashing:64", version="next")
    ev.process_all()
    writer.send(RUN)
    ended(served, "default")
    shown = writer.get("/ui/verify").text
    assert "<dd>2 checks, one for each record and embedding version in " in shown


def test_a_repair_of_everything_is_confirmed_and_recorded(
    served: Served, ev: Evervec, writer: Person
) -> None:
    wound(ev)
    assert writer.send(RUN, repair="1").status_code == 422
    assert state(served, "default") is None
    writer.send(RUN, repair="1", confirm="repair")
    assert ended(served, "default").repaired == 4
    ev.process_all()
    assert ev.verify().complete
    admin = person(served, served.key(role="admin"))
    until(lambda: "done: 4 repaired" in admin.get("/ui/audit").text, "the entry of its end")
    assert "started" in admin.get("/ui/audit", action="index.repair").text


def test_a_quick_run_says_what_it_did_not_check(
    served: Served, ev: Evervec, writer: Person
) -> None:
    ev.add("note", "tea", id="1")
    ev.process_all()
    writer.send(RUN, quick="1")
    assert ended(served, "default").quick
    assert "vectors were not compared with the texts" in writer.get("/ui/verify").text
    writer.send(RUN)
    ended(served, "default")
    assert "exactly the latest version of every record" in writer.get("/ui/verify").text


def test_one_runs_at_a_time_and_can_be_watched_and_cancelled(
    served: Served, ev: Evervec, writer: Person, held: Held
) -> None:
    wound(ev)
    writer.send(RUN)
    assert held.began.wait(60)
    assert writer.send(RUN).status_code == 409
    page = writer.get("/ui/verify").text
    assert "Verifying" in page
    assert "Of about</dt><dd>12" in page or "waits for its turn" in page
    assert ">Cancel</button>" in page
    assert ">Repair</button>" not in page
    until(lambda: (state(served, "default") or run_of("")).total == 12, "its first report")
    assert "Of about</dt><dd>12" in writer.get("/ui/verify").text
    writer.send(CANCEL)
    held.go_on.set()
    run = ended(served, "default")
    assert (run.state, run.cancelled_by) == ("cancelled", "a")
    assert "Cancelled by" in writer.get("/ui/verify").text
    assert writer.send(CANCEL).status_code == 409


def run_of(agent: str, **given: Any) -> VerifyRun:
    return VerifyRun("x", agent, None, 0.0, 0.0, **given)


def test_a_run_whose_process_died_is_interrupted_and_gives_way(
    served: Served, ev: Evervec, writer: Person
) -> None:
    now = ev.store.now()
    dead = VerifyRun("x", "b", None, now, now - LOST_SECONDS - 1, "running")
    notes.VERIFY_RUN.of("tenant default").put(ev.store.shared, dead)
    page = writer.get("/ui/verify").text
    assert "Interrupted" in page
    assert ">Cancel</button>" not in page
    assert writer.send(RUN).status_code == 303
    assert ended(served, "default").state == "done"


def test_a_failure_tells_tenants_no_details(
    served: Served, monkeypatch: pytest.MonkeyPatch, writer: Person
) -> None:
    def fail(ev: Evervec, *args: Any, **options: Any) -> VerifyReport:
        raise StoreError("db.internal:5432 refused the connection")

    monkeypatch.setattr(Evervec, "verify", fail)
    writer.send(RUN)
    assert ended(served, "default").state == "failed"
    page = writer.get("/ui/verify").text
    assert "db.internal" not in page
    assert "the store is unavailable" in page
    admin = person(served, served.key(role="admin"))
    assert "db.internal" in admin.get("/ui/verify", tenant="default").text


def test_readers_see_the_last_result_and_cannot_run(
    served: Served, ev: Evervec, writer: Person
) -> None:
    wound(ev)
    writer.send(RUN)
    ended(served, "default")
    reader = person(served, served.key("default", "reader"))
    page = reader.get("/ui/verify").text
    assert "What is wrong" in page
    assert 'action="/ui/verify' not in page
    assert ">Repair</button>" not in page
    for path in (RUN, REPAIR, CANCEL):
        assert reader.send(path, kind="note", fault="missing").status_code == 403


def test_a_tenant_sees_and_repairs_only_its_own(served: Served, ev: Evervec) -> None:
    wound(ev)
    wound(ev.of("acme"))
    other = person(served, served.key("acme", "writer"))
    admin = person(served, served.key(role="admin"))
    admin.send(RUN)
    assert ended(served, None).checked == 24
    assert "Nothing was verified here yet" in other.get("/ui/verify").text
    page = admin.get("/ui/verify").text
    assert "/ui/verify?tenant=acme" in page
    assert other.get("/ui/verify", tenant="default").status_code == 403
    assert other.send(f"{RUN}?tenant=default").status_code == 403
    other.send(REPAIR, kind="note", fault="missing")
    assert ended(served, "acme").repaired == 2
    ev.process_all()
    assert (ev.verify().missing, ev.of("acme").verify().missing) == (4, 2)
    admin.send(f"{RUN}?tenant=acme", repair="1", confirm="repair")
    assert ended(served, "acme").repaired == 2
    ev.process_all()
    assert (ev.verify().missing, ev.of("acme").verify().missing) == (4, 0)


def test_a_stopping_service_ends_its_runs(ev: Evervec, serve: Serve, held: Held) -> None:
    wound(ev)
    served = serve(ev)
    writer = person(served, served.key("default", "writer"))
    writer.send(RUN)
    assert held.began.wait(60)
    service = served.app.state.service
    closing = threading.Thread(target=served.close)
    closing.start()
    until(service.stopping.is_set, "the service to stop")
    held.go_on.set()
    closing.join()
    run = notes.VERIFY_RUN.of("tenant default").get(ev.store.shared)
    assert run is not None
    assert run.over


@pytest.mark.parametrize("fault", ["", "broken", "<script>", "missing\u202e"])
def test_an_unknown_fault_is_refused(served: Served, writer: Person, fault: str) -> None:
    assert writer.send(REPAIR, kind="note", fault=fault).status_code == 422
    assert state(served, "default") is None


def test_hostile_kinds_and_agents_are_only_text(served: Served, ev: Evervec) -> None:
    hostile = "<script>alert(1)</script>\"'\u202e"
    ev.add(hostile, "tea", id="1")
    ev.process_all()
    (version,) = [c.version for c in ev.store.versions.collections()]
    ev.index.remove(version, ev.index.held(version, None, 0, None))
    writer = person(served, served.key("default", "writer", hostile))
    writer.send(RUN)
    ended(served, "default")
    page = writer.get("/ui/verify").text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    writer.send(REPAIR, kind=hostile, fault="missing")
    assert ended(served, "default").repaired == 1
