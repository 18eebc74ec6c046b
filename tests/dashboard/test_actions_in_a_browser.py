"""Every action as each role, in a real browser, while a worker process is killed and started again.

The actions are those of the application: a new one fails here until it is tried too.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

import evervec
from evervec import Evervec, RateLimited
from evervec.model.jobs import Job, Status
from evervec.server.dashboard.paths import SIGN_IN, THEME
from evervec.server.keys import Role
from support.browser import Visitor, expect
from support.dashboard import OF_VISITS, SIGN_OUT, actions, filled, role_for
from support.furnished import attach_table
from support.held_verify import Held
from support.processes import Child, Start, children, until
from support.service import Serve, Served

_POST = """
async (path) => {
    const token = document.documentElement.dataset.formToken;
    const body = new URLSearchParams({ form_token: token });
    return (await fetch(path, { method: "POST", body, redirect: "manual" })).status;
}
"""
_FORMS = """
[...document.querySelectorAll("form[method=post]")].map((form) => new URL(form.action).pathname)
"""
_PAGES = "[...document.querySelectorAll('nav a')].map((link) => link.pathname)"
ANYTHING = dict.fromkeys(("id", "kind", "fingerprint", "tenant"), "1") | {"step": "switch"}
_PATIENCE = 60.0


class Workers:
    """A worker process on the store; it is killed, and there is another."""

    def __init__(self, start: Start, path: Path) -> None:
        self._start, self._path = start, path
        self._running: Child | None = None
        self.killed = 0

    def start(self) -> None:
        self._running = self._start("work", self._path, embedder="hashing")

    def kill(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running, self.killed = None, self.killed + 1


class Scene:
    """Somebody of a role in front of the dashboard of a store in use."""

    def __init__(
        self,
        ev: Evervec,
        served: Served,
        visitor: Visitor,
        workers: Workers,
        role: Role,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.ev, self.served, self.visitor = ev, served, visitor
        self.workers, self.role = workers, role
        self.key = served.key(role=role, agent=f"the {role}")
        self.page = visitor.sign_in(self.key)
        self.monkeypatch = monkeypatch

    def go(self, path: str) -> Page:
        return self.visitor.go(path)

    def press(self, name: str) -> None:
        self.page.locator("main").get_by_role("button", name=name, exact=True).first.click()

    def says(self, text: str = "") -> None:
        expect(self.page.locator(".notice")).to_contain_text(text)

    def confirm(self, word: str) -> None:
        self.page.get_by_label(f"Type {word} to confirm").locator("visible=true").first.fill(word)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Without a worker: what it died with is taken back, and nothing else is left to do."""
        self.workers.kill()
        self.ev.queue.recover_stuck(0)
        self.ev.process_all()
        yield
        self.workers.start()

    def job(self, id: str, error: str, *, permanent: bool) -> Job:
        """One that has failed."""
        with self.alone():
            self.ev.add("note", f"a text about {id}", id=id)
            (job,) = self.ev.queue.claim(10)
            self.ev.queue.fail(job, error, permanent=permanent)
            self.ev.queue.recorder.flush()
        return job

    def status(self, job: Job) -> Status:
        found = self.ev.queue.get(job.job_id)
        assert found is not None
        return found.status

    def verify(self) -> None:
        self.go("/ui/verify")
        self.press("Verify")
        self.says("The verification has started")
        expect(self.page.locator("#run-title")).to_contain_text("Verified")


# visits
def sign_in(scene: Scene) -> None:
    expect(scene.page.get_by_role("button", name="Sign out")).to_be_visible()


def theme(scene: Scene) -> None:
    scene.go("/").get_by_label("Theme").select_option("dark")
    expect(scene.page.locator("html")).to_have_attribute("data-theme", "dark")


def sign_out(scene: Scene) -> None:
    scene.go("/").get_by_role("button", name="Sign out").click()
    expect(scene.page.get_by_label("API key")).to_be_visible()


# writers
def dismiss(scene: Scene) -> None:
    scene.job("a", "the first reason", permanent=True)
    scene.go("/ui/failures")
    scene.press("Dismiss")
    scene.says("Dismissed")
    expect(scene.page.get_by_text("the first reason")).to_have_count(0)


def bulk(scene: Scene) -> None:
    job = scene.job("b", "the second reason", permanent=True)
    scene.go("/ui/jobs?q=status:failed")
    scene.page.get_by_label(f"Job {job.job_id}", exact=True).check()
    scene.press("Retry…")
    scene.press("Retry 1 job")
    scene.says("1 job was retried")
    until(lambda: scene.status(job) is Status.DONE, "the job to be done")


def set_priority(scene: Scene) -> None:
    job = scene.job("c", "try again in an hour", permanent=False)
    scene.go(f"/ui/jobs/{job.job_id}").get_by_label("Priority").fill("7")
    scene.press("Set")
    scene.says("has the priority 7 now")


def retry(scene: Scene) -> None:
    job = scene.job("d", "the third reason", permanent=True)
    scene.go(f"/ui/jobs/{job.job_id}")
    scene.press("Retry")
    scene.says("will be tried again")
    expect(scene.page.locator("#live .tag").first).to_have_text("done")


def pause_queue(scene: Scene) -> None:
    scene.go("/ui/workers")
    scene.press("Pause the queue" if scene.role is Role.ADMIN else "Pause this tenant")
    scene.says("no job is claimed")


def resume_queue(scene: Scene) -> None:
    scene.go("/ui/workers")
    scene.press("Resume the queue" if scene.role is Role.ADMIN else "Resume this tenant")
    scene.says("resumed")


def change_record(scene: Scene) -> None:
    scene.ev.add("note", "to be embedded again", id="again")
    scene.go("/ui/records/note/again" + "?tenant=default" * (scene.role is Role.ADMIN))
    scene.press("Embed again")
    scene.says("is enqueued")
    scene.confirm("again")
    scene.press("Delete this record")
    scene.says("is deleted")
    assert scene.ev.get("note", "again") is None


def run_verify(scene: Scene) -> None:
    scene.verify()


def repair(scene: Scene) -> None:
    with scene.alone():
        for collection in scene.ev.store.versions.collections():
            points = scene.ev.index.held(collection.version, "default", 0, None)
            scene.ev.index.remove(
                collection.version, points[:1] if collection.kind == "page" else []
            )
    scene.verify()
    scene.press("Repair the missing records of page")
    scene.says("The repair of missing records has started")
    expect(scene.page.get_by_text("1 repaired").first).to_be_visible()


def cancel_verify(scene: Scene) -> None:
    held = Held(scene.monkeypatch)
    scene.go("/ui/verify")
    scene.press("Verify")
    assert held.began.wait(_PATIENCE)
    scene.press("Cancel")
    scene.says("The verification stops")
    held.go_on.set()
    expect(scene.page.locator("#run-title")).to_contain_text("Cancelled")


# admins
def create_key(scene: Scene) -> None:
    scene.go("/ui/keys").get_by_text("Create a key").click()
    scene.page.get_by_label("Agent").fill("made")
    scene.page.get_by_label("Your admin key, again").fill(scene.key)
    scene.press("Create key")
    expect(scene.page.locator("#new-key")).to_contain_text("ev_")


def open_key(scene: Scene) -> None:
    scene.go("/ui/keys").get_by_role("row").filter(has_text="made").filter(
        has_text="valid"
    ).first.get_by_role("link").click()


def rotate_key(scene: Scene) -> None:
    open_key(scene)
    scene.page.locator("#rotate-key").fill(scene.key)
    scene.press("Rotate")
    expect(scene.page.locator("#new-key")).to_contain_text("ev_")


def revoke_key(scene: Scene) -> None:
    open_key(scene)
    scene.confirm(scene.page.url.rpartition("/")[2])
    scene.page.locator("#revoke-key").fill(scene.key)
    scene.press("Revoke")
    scene.says("is revoked")


def probe(scene: Scene) -> None:
    scene.ev.provider._gates.shut(RateLimited(3600.0, "slow down"))
    scene.go("/ui/workers")
    scene.press("Probe now")
    scene.says("answered: embedding resumes")


def attach_again(scene: Scene) -> None:
    scene.go("/ui/tables").get_by_role("link", name="Attach again").click()
    scene.press("Attach again")
    scene.says("attached again")


def detach(scene: Scene) -> None:
    scene.go("/ui/tables").get_by_text("Detach …").click()
    scene.confirm("row")
    scene.press("Detach")
    scene.says("detached")
    assert scene.ev.attachments.attached() == []


def set_limits(scene: Scene) -> None:
    scene.go("/ui/tenants/acme").get_by_label("records", exact=True).fill("500")
    scene.press("Save limits")
    scene.says("The limits of acme are saved")


def pause_tenant(scene: Scene) -> None:
    scene.go("/ui/tenants/acme")
    scene.press("Pause")
    scene.says("acme is paused")


def resume_tenant(scene: Scene) -> None:
    scene.go("/ui/tenants/acme")
    scene.press("Resume")
    scene.says("acme is resumed")


def begin(scene: Scene) -> None:
    scene.go("/ui/versions").get_by_label("Model", exact=True).fill("hashing:64")
    scene.page.get_by_label("Name of the version").fill("next")
    scene.press("Begin")
    expect(scene.page.get_by_role("heading", name="Building next")).to_be_visible()
    expect(scene.page.get_by_text("It is complete: compare, then switch.")).to_be_visible()


def compare(scene: Scene) -> None:
    scene.go("/ui/versions")
    scene.press("Compare on sampled queries")
    expect(scene.page.get_by_text("its vectors are those of the records")).to_be_visible()


def change_serving(scene: Scene) -> None:
    scene.go("/ui/versions")
    for do, heading in (
        ("Switch", "Switched to next"),
        ("Roll back", "Rolled back from next"),
        ("Cancel", None),
    ):
        scene.page.get_by_text(f"{do} …").click()
        scene.confirm("next")
        scene.press(do)
        if heading:
            expect(scene.page.get_by_role("heading", name=heading)).to_be_visible()
    scene.says("next is given up")


def pause_worker(scene: Scene) -> None:
    scene.workers.kill()
    scene.workers.start()
    scene.go("/ui/workers")
    scene.press("Pause")
    scene.says("is paused")


def resume_worker(scene: Scene) -> None:
    scene.go("/ui/workers")
    scene.press("Resume")
    scene.says("claims jobs again")


ACTS: dict[str, Callable[[Scene], None]] = {
    SIGN_IN: sign_in,
    THEME: theme,
    "/ui/failures/{fingerprint}/dismiss": dismiss,
    "/ui/jobs/bulk": bulk,
    "/ui/jobs/{id}/priority": set_priority,
    "/ui/jobs/{id}/retry": retry,
    "/ui/queue/pause": pause_queue,
    "/ui/queue/resume": resume_queue,
    "/ui/records/{kind}/{id:path}": change_record,
    "/ui/verify/run": run_verify,
    "/ui/verify/repair": repair,
    "/ui/verify/cancel": cancel_verify,
    "/ui/keys": create_key,
    "/ui/keys/{id}/rotate": rotate_key,
    "/ui/keys/{id}/revoke": revoke_key,
    "/ui/provider/probe": probe,
    "/ui/tables/again": attach_again,
    "/ui/tables/detach": detach,
    "/ui/tenants/{tenant}/limits": set_limits,
    "/ui/tenants/{tenant}/pause": pause_tenant,
    "/ui/tenants/{tenant}/resume": resume_tenant,
    "/ui/versions/begin": begin,
    "/ui/versions/compare": compare,
    "/ui/versions/{step}": change_serving,
    "/ui/workers/pause": pause_worker,
    "/ui/workers/resume": resume_worker,
    SIGN_OUT: sign_out,
}


def test_every_action_is_tried() -> None:
    assert set(ACTS) == set(actions())


def may(role: Role, path: str) -> bool:
    return path in OF_VISITS or role_for(path, "POST").rank <= role.rank


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Evervec]:
    """A store with a record of each sort; what fails once waits for an hour."""
    path = tmp_path / "store.db"
    settings: dict[str, Any] = {
        "embedder": "hashing", "backoff_seconds": 3600.0, "rate_per_second": 1e6, "rate_burst": 10**6,
    }  # fmt: skip
    with evervec.open(path, **settings) as ev:
        for n in range(3):
            ev.add("note", f"note {n}", id=f"n{n}")
            ev.add("page", f"page {n}", id=f"p{n}")
        ev.of("acme").add("note", "a note of acme", id="1")
        attach_table(ev, path, "things", "row")
        ev.process_all()
        yield ev


def tries(role: Role, path: str, form: str) -> bool:
    """Whether an action is tried by a role; in the short form only by the least that may, apart from
    those that mean something else to an admin."""
    if form == "long":
        return may(role, path)
    least = Role.READER if path in OF_VISITS else role_for(path, "POST")
    other = role is Role.ADMIN and path.startswith(("/ui/queue/", "/ui/records/"))
    return role is least or path == SIGN_IN or other


@pytest.mark.parametrize("form", ["short", pytest.param("long", marks=pytest.mark.long)])
@pytest.mark.parametrize("role", list(Role))
def test_each_role_does_what_it_may_while_workers_are_killed(
    role: Role,
    form: str,
    tmp_path: Path,
    store: Evervec,
    serve: Serve,
    visit: Callable[..., Visitor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = serve(store)
    with children(tmp_path) as start:
        workers = Workers(start, tmp_path / "store.db")
        visitor = visit(served)
        scene = Scene(store, served, visitor, workers, role, monkeypatch)
        done = 0
        for path, act in ACTS.items():
            if tries(role, path, form):
                workers.kill()
                workers.start()
                act(scene)
                visitor.assert_quiet()
                done += 1
        assert workers.killed >= done - 1
    served.close()


@pytest.mark.parametrize("role", [Role.READER, Role.WRITER])
def test_no_role_is_offered_or_does_what_it_may_not(
    role: Role, store: Evervec, serve: Serve, visit: Callable[..., Visitor]
) -> None:
    served = serve(store)
    visitor = visit(served)
    visitor.expected = ("status of 403",)
    page = visitor.sign_in(served.key(role=role))
    refused = {filled(path, ANYTHING) for path in ACTS if not may(role, path)}
    assert refused
    for address in sorted(refused):
        assert page.evaluate(_POST, address) == 403, address
    for shown in page.evaluate(_PAGES):
        visitor.go(shown)
        assert not refused & set(page.evaluate(_FORMS)), shown
    served.close()
