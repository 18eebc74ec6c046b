"""The map: points that link to records, in colours that say what they are."""

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from evervec import DeadlineExceeded, Evervec
from evervec.model.deadlines import deadline
from evervec.server.dashboard.pages import map as map_page
from evervec.server.dashboard.pages.map import MOST, Map, Maps, grouping_fields, make_map
from evervec.server.dashboard.projection import ABSENT, OTHERS, grouped, project, stepped
from support.dashboard import person
from support.pages import HOSTILE, read
from support.processes import until
from support.service import Served


@pytest.mark.parametrize("role", ["reader", "writer", "admin"])
def test_each_record_is_a_point_that_leads_to_it(ev: Evervec, served: Served, role: str) -> None:
    ev.add("note", "tea", id="a/b", title="Tea", metadata={"topic": "plants"})
    ev.add("page", "coffee", id="2", metadata={"topic": "drinks"})
    ev.of("other").add("note", "theirs", id="theirs")
    ev.process_all()
    somebody = person(served, served.key(role=role))
    page = read(somebody, "/ui/map")
    assert {"/ui/records/note/a%2Fb", "/ui/records/page/2"} <= set(page.links)
    assert not [link for link in page.links if "theirs" in link]
    circles = [attrs["class"] for tag, attrs in page.tags if tag == "circle"]
    assert sorted(circles) == ["m0", "m1"]
    assert "2 records" in page.text


def test_the_colour_is_chosen(ev: Evervec, served: Served) -> None:
    for n in range(6):
        ev.add("note", f"text {n}", id=str(n), metadata={"topic": "even" if n % 2 == 0 else "odd"})
    ev.process_all()
    somebody = person(served)
    page = read(somebody, "/ui/map", colour="field:topic")
    assert "even 3" in page.text
    assert "odd 3" in page.text
    assert "t0" in {attrs.get("class") for _, attrs in read(somebody, "/ui/map", colour="age").tags}
    assert f"{ABSENT} 6" in read(somebody, "/ui/map", colour="field:nothing").text


def test_the_map_of_one_kind_shows_that_kind(ev: Evervec, served: Served) -> None:
    ev.add("note", "tea", id="1")
    ev.add("page", "tea", id="2")
    ev.process_all()
    page = read(person(served), "/ui/map", kind="page")
    assert [link for link in page.links if link.startswith("/ui/records/")] == [
        "/ui/records/page/2"
    ]


def test_kinds_of_another_model_are_left_out_and_named(ev: Evervec, served: Served) -> None:
    for kind in ("a", "b", "c"):
        ev.add(kind, "tea", id="1")
    ev.process_all()
    migration = ev.migrate("hashing:64", kind="c")
    ev.process_all()
    migration.switch()
    page = read(person(served), "/ui/map")
    assert "another model: c" in page.text
    assert "/ui/records/c/1" not in page.links


def test_the_map_is_kept_while_nothing_changes(ev: Evervec) -> None:
    maps = Maps()
    ev.add("note", "tea", id="1")
    ev.process_all()
    first = maps.read(ev, "")
    assert maps.read(ev, "") is first
    assert maps.read(ev, "note") is not first
    assert maps.read(ev.of("other"), "").points == []
    ev.add("note", "coffee", id="2")
    ev.process_all()
    assert len(maps.read(ev, "").points) == 2


def test_colours_that_a_client_makes_up_evict_no_map(ev: Evervec, served: Served) -> None:
    ev.add("note", "tea", id="1")
    ev.process_all()
    maps: Maps = served.app.state.maps
    somebody = person(served)
    for number in range(20):
        assert somebody.get("/ui/map", colour=f"field:{number}").status_code == 200
    assert len(maps._kept) == 1
    assert not maps._making


def test_requests_for_one_map_make_it_once(ev: Evervec, monkeypatch: pytest.MonkeyPatch) -> None:
    maps, made, go = Maps(), [0], threading.Event()

    def slow(*given: Any) -> Map:
        made[0] += 1
        assert go.wait(60)
        return make_map(*given)

    monkeypatch.setattr(map_page, "make_map", slow)
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(maps.read, ev, "") for _ in range(4)]
        until(lambda: maps._making.get((ev.tenant, ""), (None, 0))[1] == 4, "four threads to wait")
        go.set()
        assert len({id(each.result(60)) for each in found}) == 1
    assert made == [1]
    assert not maps._making


def test_who_waits_for_a_map_waits_no_longer_than_the_deadline(ev: Evervec) -> None:
    maps = Maps()
    with maps._turn((ev.tenant, "")), pytest.raises(DeadlineExceeded), deadline(0.01):
        maps.read(ev, "")
    assert not maps._making


def test_the_fields_of_a_map_are_bounded() -> None:
    """Every record with hundreds of fields that no other has."""
    many = [
        json.dumps({"topic": f"t{n % 3}"} | {f"{n} {k}": k for k in range(300)}) for n in range(300)
    ]
    found = grouping_fields([*many, None, "{}"])
    assert len(found) == 24
    assert found["topic"] == [f"t{n % 3}" for n in range(300)] + [None, None]
    assert len({id(value) for value in found["topic"]}) == 4, "equal values are in memory once"
    assert grouping_fields([json.dumps({"n": n}) for n in range(300)]) == {}
    assert grouping_fields(['{"x": {"y": 1}, "z": [], "l": [1, 2]}']) == {"l": ["1, 2"]}


def test_an_empty_store_and_hostile_texts(ev: Evervec, served: Served) -> None:
    somebody = person(served)
    assert "No vectors yet" in read(somebody, "/ui/map").text
    ev.add(HOSTILE, "tea", id=HOSTILE, title=HOSTILE, metadata={HOSTILE: HOSTILE, "n": None})
    ev.process_all()
    asked: list[dict[str, Any]] = [
        {}, {"kind": HOSTILE}, {"colour": f"field:{HOSTILE}"}, {"colour": HOSTILE},
    ]  # fmt: skip
    for params in asked:
        read(somebody, "/ui/map", **params)


def test_a_large_map_is_a_sample(ev: Evervec, served: Served) -> None:
    list(ev.add_many("note", ({"id": n, "text": f"text {n}"} for n in range(MOST + 500))))
    ev.process_all()
    page = person(served).get("/ui/map").text
    points = re.findall("<circle", page)
    assert MOST * 0.9 < len(points) <= MOST
    assert "A sample of" in page
    assert "explained variance" in page


def test_the_projection_finds_the_directions_of_most_variance() -> None:
    chance = np.random.default_rng(1)
    flat = chance.standard_normal((300, 2)) * [5.0, 2.0]
    turn, _ = np.linalg.qr(chance.standard_normal((40, 40)))
    vectors = np.hstack([flat, chance.standard_normal((300, 38)) * 0.1]) @ turn
    found = project(list(vectors.astype(np.float32)))
    points = np.array(found.points)
    for axis in range(2):
        assert abs(np.corrcoef(points[:, axis], flat[:, axis])[0, 1]) > 0.99
    assert sum(found.shares) > 0.97
    assert found.shares[0] > found.shares[1]
    assert project(list(vectors.astype(np.float32))) == found


@pytest.mark.parametrize("vectors", [[], [[1.0, 0.0]], [[1.0, 0.0]] * 3, [[1.0], [2.0]]])
def test_few_or_equal_vectors_are_projected_too(vectors: list[list[float]]) -> None:
    found = project([np.array(each, dtype=np.float32) for each in vectors])
    assert len(found.points) == len(vectors)
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in found.points)


def test_rare_values_share_a_colour() -> None:
    tones, groups = grouped([*"aaabbcdefghij", None])
    assert [group.name for group in groups][:2] == ["a", "b"]
    assert {group.name: group.count for group in groups}[OTHERS] == 3
    assert tones[0] == "m0"
    assert tones[-1] == "none"


def test_steps_have_about_as_many_points() -> None:
    tones, groups = stepped([float(n) for n in range(100)], str)
    assert len(tones) == 100
    assert [group.count for group in groups] == [20] * 5
    _, same = stepped([1.0] * 10, str)
    assert len(same) == 1
