"""The map: points that link to records, in colours that say what they are."""

import re
from typing import Any

import numpy as np
import pytest

from evervec import Evervec
from evervec.server.dashboard.pages.map import MOST, Maps
from evervec.server.dashboard.projection import ABSENT, OTHERS, grouped, project, stepped
from support.dashboard import person
from support.pages import HOSTILE, read
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
    first = maps.read(ev, "", "")
    assert maps.read(ev, "", "") is first
    assert maps.read(ev, "", "age") is not first
    assert maps.read(ev.of("other"), "", "").points == []
    ev.add("note", "coffee", id="2")
    ev.process_all()
    assert len(maps.read(ev, "", "").points) == 2


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
