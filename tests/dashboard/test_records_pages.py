"""Lists of records, and one record: its text and chunks, its history, and what may be done to it."""

import json
import re
import threading
from urllib.parse import quote

import pytest

from evervec import Evervec, IndexUnavailable
from evervec.indexes.base import Matches, Query
from evervec.server.audit import Audit
from evervec.stores.service_values import AuditChoice
from support.dashboard import Person, person
from support.pages import HOSTILE, Shown, read
from support.processes import until
from support.service import Serve, Served

ODD_IDS = (
    "a/b",
    "a//b/",
    "../x",
    "q?x=1&y#z",
    "50%",
    "a%2Fb",
    "\u202ebdi",
    "delete",
    "ü\U0001f600",
    " x ",
    ".",
    "..",
    "~..",
)


def address(kind: str, id: str) -> str:
    """Its address; a browser takes dots for steps upwards, so they are written with a tilde."""
    steps = (f"~{name}" if re.fullmatch(r"~*\.\.?", name) else name for name in (kind, id))
    return "/ui/records/" + "/".join(quote(step, safe="") for step in steps)


def listed(somebody: Person, path: str = "/ui/records", **params: object) -> list[str]:
    """The ids of all pages of a list, by their links."""
    found: list[str] = []
    following: str | None = path
    while following:
        answer = somebody.get(following, **params, format="ndjson")
        assert answer.status_code == 200, answer.text
        found += [json.loads(line)["id"] for line in answer.text.splitlines()]
        following, params = answer.links.get("next", {}).get("url"), {}
        following = following and f"{following}&"
    return found


def test_a_list_is_read_page_by_page(ev: Evervec, served: Served) -> None:
    list(ev.add_many("note", [{"id": f"{n:03}", "text": f"text {n}"} for n in range(120)]))
    ev.add("page", "another", id="000")
    somebody = person(served)
    first = read(somebody, "/ui/records")
    assert "Next page" in first.text
    ids = []
    at: str | None = "/ui/records"
    while at:
        page = read(somebody, at)
        ids += [link.rsplit("/", 1)[1] for link in page.links if link.startswith("/ui/records/")]
        at = next(
            (link for link in page.links if "cursor=" in link and "format=" not in link), None
        )
    assert ids == [*(f"{n:03}" for n in range(120)), "000"]


def test_a_list_is_narrowed_by_kind_metadata_and_state(ev: Evervec, served: Served) -> None:
    ev.add("note", "one", id="1", metadata={"year": 2019, "tags": ["a", "b"]})
    ev.process_all()
    ev.add("note", "two", id="2", metadata={"year": 2021})
    ev.add("page", "three", id="3")
    somebody = person(served)
    assert listed(somebody, kind="note") == ["1", "2"]
    assert listed(somebody, embedded="no") == ["2", "3"]
    assert listed(somebody, embedded="yes") == ["1"]
    assert listed(somebody, field="year", test="gte", value="2020") == ["2"]
    assert listed(somebody, field="tags", test="eq", value="b") == ["1"]
    assert listed(somebody, field="year", test="missing", value="") == ["3"]
    assert listed(somebody, filter='{"or": [{"year": 2019}, {"year": 2021}]}') == ["1", "2"]
    assert "No records match" in read(somebody, "/ui/records", kind="none").text


@pytest.mark.parametrize(
    "params",
    [{"cursor": "x"}, {"filter": "["}, {"kind": "x" * 300}, {"embedded": "maybe"}, {"field": "x"}],
)
def test_what_is_wrong_with_a_list_is_said_on_the_page(
    served: Served, params: dict[str, str]
) -> None:
    answer = person(served).get("/ui/records", **params)
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    list = person(served).get("/ui/records", format="csv", **params)
    assert list.status_code == 422, "not an empty list"


@pytest.mark.parametrize("id", ODD_IDS)
def test_a_record_of_any_id_has_its_page(ev: Evervec, served: Served, id: str) -> None:
    ev.add("k/1", "Tea is grown on hills.", id=id, title="Tea")
    ev.process_all()
    somebody = person(served)
    (link,) = [x for x in read(somebody, "/ui/records").links if x.startswith("/ui/records/")]
    assert link == address("k/1", id)
    page = read(somebody, link)
    assert "Tea is grown on hills." in page.text
    assert link in page.actions
    assert somebody.get(address("k/1", id + "x")).status_code == 404
    gone = somebody.send(link, seq="1", confirm="wrong")
    assert gone.status_code == 422
    assert ev.get("k/1", id) is not None


def test_kinds_and_tenants_named_like_steps_of_a_path_have_their_pages(
    ev: Evervec, served: Served
) -> None:
    for name in (".", "..", "~."):
        ev.of(name).add(name, "Tea is grown on hills.", id="1")
        somebody = person(served, served.key(role="admin"))
        listed = read(somebody, "/ui/records", tenant=name).links
        (record,) = {each for each in listed if "/records/" in each}
        assert "Tea is grown on hills." in read(somebody, record).text
        listed = read(somebody, "/ui/tenants", q=name).links
        page = read(somebody, next(each for each in listed if each.endswith(f"/~{name}")))
        assert f"Tenant {name}" in page.text


def test_a_record_shows_its_chunks_versions_and_attempts(ev: Evervec, served: Served) -> None:
    text = "\n\n".join(f"Paragraph {n}: " + "words and more words. " * 40 for n in range(8))
    ev.add("note", text, id="1", metadata={"topic": "plants"})
    ev.add("note", "near", id="2")
    ev.process_all()
    ev.add("note", text + "\n\nOne more sentence.", id="1", metadata={"topic": "plants"})
    ev.process_all()
    ev.migrate("hashing:64", version="next")
    ev.process_all()
    page = read(person(served), "/ui/records/note/1")
    chunks = len(ev.vectors("note", ["1"])["1"])
    assert chunks > 2
    assert f"in {chunks} chunks" in page.text
    ids = {attrs.get("id") for _, attrs in page.tags}
    assert {f"chunk-{n}" for n in range(chunks)} <= ids
    assert {"hashing-256", "next"} <= set(page.text.split())
    last = ev.queue.history("note", "1")[1]
    assert last.chunks_reused > 0
    assert "plants" in page.text
    assert "/ui/records/note/2" in page.links
    rows = person(served).get("/ui/records/note/1", format="ndjson").text.splitlines()
    versions = [json.loads(row)["embedding_version"] for row in rows]
    assert versions == ["hashing-256", "hashing-256", "next"]
    jobs = ev.queue.jobs(kind="note", id="1")
    for address in ("/ui/records/note/1", f"/ui/jobs/{jobs[0].job_id}"):
        cells = re.findall(r'data-label="Version"><bdi>([^<]+)<', person(served).get(address).text)
        assert cells[-3:] == versions[::-1], "of the table of attempts"


def test_the_whole_text_is_shown_once(ev: Evervec, served: Served) -> None:
    text = " ".join(f"word{n}" for n in range(2000))
    ev.add("note", text, id="1")
    ev.process_all()
    shown = read(person(served), "/ui/records/note/1").text
    for n in (0, 1, 999, 1999):
        assert shown.split().count(f"word{n}") == 1


def test_a_very_long_text_is_cut(ev: Evervec, served: Served) -> None:
    ev.add("note", "long words " * 20_000, id="1")
    page = person(served).get("/ui/records/note/1")
    assert len(page.text) < 200_000
    assert "of 220,000 characters" in Shown(page.text).text


def test_a_hidden_record_says_so(ev: Evervec, served: Served) -> None:
    ev.add("note", "hidden for now", id="1", boxed=True)
    page = read(person(served), "/ui/records/note/1")
    assert "no visible record" in page.text
    assert "hidden for now" not in page.text
    assert page.actions <= {"/ui/theme", "/ui/sign-out"}


def test_a_writer_deletes_a_record_with_its_name(ev: Evervec, served: Served) -> None:
    ev.add("note", "text", id="a/b")
    writer = person(served, served.key(role="writer", agent="wren"))
    path = address("note", "a/b")
    seq = read(writer, path).value_of("seq")
    assert writer.send(path, seq=seq, confirm="a").status_code == 422
    ev.add("note", "another text", id="a/b")
    changed = writer.send(path, seq=seq, confirm="a/b")
    assert changed.status_code == 409
    assert ev.get("note", "a/b") is not None
    seq = read(writer, path).value_of("seq")
    answer = writer.send(path, seq=seq, confirm="a/b")
    assert answer.status_code == 303
    assert "is deleted" in writer.get(answer.headers["location"]).text
    assert ev.get("note", "a/b") is None
    (entry,) = Audit(ev.store).list(AuditChoice(action="record.delete"))
    assert (entry.agent, entry.target, entry.outcome) == ("wren", "note/a/b", "done")


def test_a_writer_embeds_a_record_again(ev: Evervec, served: Served) -> None:
    ev.add("note", "text", id="1")
    ev.process_all()
    writer = person(served, served.key(role="writer"))
    assert writer.send("/ui/records/note/1", do="embed").status_code == 303
    job = ev.queue.status("note", "1")
    assert job is not None
    assert job.status == "pending"
    assert writer.send("/ui/records/note/2", do="embed").status_code == 404


def test_a_reader_may_change_nothing(ev: Evervec, served: Served) -> None:
    ev.add("note", "text", id="1")
    reader = person(served, served.key(role="reader"))
    assert read(reader, "/ui/records/note/1").actions <= {"/ui/theme", "/ui/sign-out"}
    for do in ("embed", "delete"):
        assert reader.send("/ui/records/note/1", do=do, confirm="1", seq="1").status_code == 403
    assert ev.get("note", "1") is not None


def test_another_tenants_record_does_not_exist(ev: Evervec, served: Served) -> None:
    ev.of("other").add("note", "theirs", id="1")
    ev.process_all()
    mine = person(served, served.key(role="writer"))
    assert listed(mine) == []
    assert mine.get("/ui/records/note/1").status_code == 404
    assert mine.get("/ui/records/note/1", tenant="other").status_code == 403
    assert mine.send("/ui/records/note/1", confirm="1", seq="1").status_code == 409
    assert mine.send("/ui/records/note/1", do="embed").status_code == 404
    assert ev.of("other").get("note", "1") is not None
    admin = person(served, served.key(role="admin"))
    page = read(admin, "/ui/records/note/1", tenant="other")
    assert "theirs" in page.text
    assert any("tenant=other" in link for link in page.links)


def test_hostile_texts_of_records_stay_texts(ev: Evervec, served: Served) -> None:
    ev.add(HOSTILE, HOSTILE, id=HOSTILE, title=HOSTILE, metadata={HOSTILE: [HOSTILE, {HOSTILE: 1}]})
    ev.process_all()
    ev.add(HOSTILE, HOSTILE + "2", id=HOSTILE)
    (job,) = ev.queue.claim(1)
    ev.queue.fail(job, HOSTILE, permanent=True)
    somebody = person(served)
    assert "<script>alert" in read(somebody, "/ui/records").text
    assert "<script>alert" in read(somebody, address(HOSTILE, HOSTILE)).text
    for path in (
        "/ui/records/%00/1",
        "/ui/records/note/%00",
        "/ui/records/note/%ff",
        "/ui/records/n/",
    ):
        assert somebody.get(path).status_code in (404, 422)


def test_a_filter_that_takes_too_long_is_given_up(
    ev: Evervec, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    ev.add("note", "text", id="1")
    monkeypatch.setattr("evervec.server.dashboard.pages.records._LIST_SECONDS", 0.0)
    assert "too few records pass this filter" in read(person(served), "/ui/records", 422).text


def test_a_page_does_not_wait_for_an_index_that_is_not_loaded(
    ev: Evervec, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    ev.add("note", "tea", id="1")
    ev.add("note", "green tea", id="2")
    ev.process_all()
    search, go = ev.index.search, threading.Event()

    def slow(query: Query) -> Matches:
        assert go.wait(60)
        return search(query)

    monkeypatch.setattr(ev.index, "search", slow)
    somebody = person(serve(ev))
    for _ in range(2):
        page = read(somebody, "/ui/records/note/1")
        assert "shown once the index is loaded" in page.text
        assert "/ui/records/note/2" not in page.links
        assert "/ui/records/note/1" in page.links, "to load it again"
    go.set()
    until(lambda: "/ui/records/note/2" in read(somebody, "/ui/records/note/1").links)


def test_a_service_loads_the_index_when_it_starts(ev: Evervec, serve: Serve) -> None:
    for tenant in ("default", "large"):
        ev.of(tenant).add("note", "tea", id="1")
        ev.process_all()
    (version,) = {c.version for c in ev.store.versions.collections_of("large")}
    assert not ev.index.is_loaded(version, "large")
    serve(ev)
    until(lambda: all(ev.index.is_loaded(version, tenant) for tenant in ("default", "large")))
    assert not ev.index.is_loaded(version, "another")


def test_an_index_that_cannot_be_searched_leaves_the_page_as_it_is(
    ev: Evervec, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    ev.add("note", "tea", id="1")
    ev.process_all()

    def away(query: Query) -> Matches:
        raise IndexUnavailable("away")

    monkeypatch.setattr(ev.index, "search", away)
    assert "known when the record is embedded" in read(person(served), "/ui/records/note/1").text
