"""Harm done to index and ledger by hand: `verify` counts each exactly, and `repair` heals it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from evervec.chunking import hash_text
from evervec.model.findings import VerifyReport
from support.engines import INDEXES
from support.sabotage import Saboteur, drop_ledger, run_sql, saboteur, zeros
from support.world import KIND, World, add_all, assert_in_step, job_of, work

TEXTS = {str(n): f"text {n} of the harbour" for n in range(6)}
FAR = 10**8
"""a number that no change ever had"""


class Scene(NamedTuple):
    world: World
    saboteur: Saboteur

    def record(self, id: str) -> int:
        return job_of(self.world.ev, id).record

    def harm(self, what: Callable[..., None], id: str, **fields: Any) -> None:
        what(self.record(id), **fields)


def on(*indexes: str) -> pytest.MarkDecorator:
    """Only where that harm can be done."""
    return pytest.mark.parametrize("world", indexes, indirect=True)


@pytest.fixture(params=[name for name in INDEXES if name != "qdrant-edge"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Every index over one store: what is done to it has nothing to do with others. The embedded
    Qdrant is slow to make, and is harmed once, by all of it."""
    made = World((INDEXES[request.param].stores[0], request.param), tmp_path)
    yield made
    made.close()


@pytest.fixture
def scene(world: World) -> Scene:
    """Six records of one tenant and one of another, all in step."""
    add_all(world.ev, KIND, *TEXTS.values())
    world.tenant("acme").add(KIND, "another tenant's", id="a")
    work(world.ev)
    (collection,) = world.ev.store.versions.collections()
    return Scene(world, saboteur(world, collection.version))


def check(scene: Scene, **wanted: int) -> VerifyReport:
    """Just that is found; then it is healed, and nothing is found any more."""
    ev = scene.world.ev
    report = ev.verify(all_tenants=True)
    assert report.found == wanted
    assert ev.verify(repair=True, all_tenants=True).found == wanted
    work(ev)
    assert ev.verify(all_tenants=True).found == {}
    assert_in_step(ev, TEXTS)
    assert [h.id for h in ev.search(TEXTS["3"], 1, mode="semantic")] == ["3"]
    acme = scene.world.tenant("acme")
    assert [h.id for h in acme.search("tenant's", mode="semantic")] == ["a"]
    return report


def test_points_that_were_deleted(scene: Scene) -> None:
    scene.harm(scene.saboteur.delete, "0")
    scene.harm(scene.saboteur.delete, "1")
    check(scene, missing=2)


@on("sqlite", "pgvector")
def test_points_that_the_engine_does_not_take_twice(scene: Scene) -> None:
    with pytest.raises(Exception, match=r"(?i)unique"):
        scene.harm(scene.saboteur.copy, "0")


@on("duckdb", "lancedb", "qdrant", "qdrant-memory")
def test_points_that_are_there_twice(scene: Scene) -> None:
    scene.harm(scene.saboteur.copy, "0")
    before = len(scene.world.embedder.texts)
    check(scene, doubled=1)
    again = scene.world.embedder.texts[before:]
    assert TEXTS["0"] not in again, "what is left of the two is good"


@on("duckdb")
def test_two_points_that_nothing_tells_apart(scene: Scene) -> None:
    """Where the copy has even the number of the first, both go and the record is embedded anew."""
    (point,) = scene.world.ev.index.held(
        scene.saboteur.version, None, scene.record("0") - 1, scene.record("0")
    )
    scene.harm(scene.saboteur.copy, "0", point=point.key)
    check(scene, doubled=1)


def test_a_change_number_that_was_altered(scene: Scene) -> None:
    """Backwards, as in an old backup, or forwards, so that nothing could be written over it."""
    scene.harm(scene.saboteur.alter, "0", seq=1)
    scene.harm(scene.saboteur.alter, "1", seq=FAR)
    check(scene, stale=2)


def test_a_hash_that_was_altered(scene: Scene) -> None:
    """The chunk that should be there is not, and one that should not is."""
    scene.harm(scene.saboteur.alter, "0", hash=hash_text("something else"))
    check(scene, missing=1, orphaned=1)


@on("sqlite", "duckdb", "pgvector", "lancedb")
def test_vectors_that_were_damaged(scene: Scene) -> None:
    """Qdrant brings all vectors to length one by itself."""
    scene.harm(scene.saboteur.alter, "0", vector=zeros())
    scene.harm(scene.saboteur.alter, "1", vector=np.full(64, 7, np.float32))
    check(scene, stale=2)


@on("sqlite", "duckdb")
def test_a_vector_of_another_size(scene: Scene) -> None:
    """The other engines do not take it."""
    scene.harm(scene.saboteur.alter, "0", vector=np.ones(3, np.float32))
    check(scene, stale=1)


@on("lancedb", "qdrant", "qdrant-memory")
def test_text_and_metadata_that_were_altered(scene: Scene) -> None:
    """The other indexes ask the store for both."""
    scene.harm(scene.saboteur.alter, "0", text="quite another")
    scene.harm(scene.saboteur.alter, "1", metadata={"shelf": 3})
    scene.harm(scene.saboteur.alter, "2", metadata="not what it should be", text=None)
    check(scene, stale=3)
    ev = scene.world.ev
    assert not ev.search("text", mode="semantic", filter={"shelf": 3})


@on("lancedb", "qdrant", "qdrant-memory", "qdrant-edge")
def test_metadata_of_all_sorts_is_the_same_in_index_and_store(scene: Scene) -> None:
    odd = {
        "n": 1,
        "x": 0.5,
        "big": 2**53 + 1,
        "t": "é",
        "l": [1, "a", None, {"d": True}],
        "z": None,
    }
    scene.world.ev.add(KIND, TEXTS["0"], id="0", metadata=odd)
    work(scene.world.ev)
    assert scene.world.ev.verify().clean


def test_points_of_another_tenant_that_were_planted(scene: Scene) -> None:
    """With the number of a record that is not his, and with that of none."""
    planted = {"tenant": "acme", "hash": hash_text("planted")}
    scene.harm(scene.saboteur.copy, "0", **planted)
    scene.harm(scene.saboteur.copy, "1", record=FAR, **planted)
    assert scene.world.ev.verify().clean, "not of this tenant"
    assert scene.world.tenant("acme").verify().found == {"orphaned": 2}
    report = check(scene, orphaned=2)
    assert [(t.tenant, t.kind, t.checked, t.orphaned) for t in report.by] == [
        ("acme", KIND, 1, 2),
        ("default", KIND, 6, 0),
    ]


def test_a_point_that_was_given_to_another_tenant(scene: Scene) -> None:
    scene.harm(scene.saboteur.alter, "0", tenant="acme")
    report = check(scene, missing=1, orphaned=1)
    assert [(t.tenant, t.missing, t.orphaned) for t in report.by] == [
        ("acme", 0, 1),
        ("default", 1, 0),
    ]


def test_ledger_rows_that_were_removed(scene: Scene) -> None:
    """Nobody knows what those points are of; they serve until others are there."""
    drop_ledger(scene.world, scene.record("0"))
    drop_ledger(scene.world, scene.record("1"))
    scene.harm(scene.saboteur.delete, "1")
    check(scene, stale=1, missing=1)


def test_points_of_a_version_that_nobody_knows(scene: Scene) -> None:
    scene.harm(scene.saboteur.misplace, "0")
    report = check(scene, misplaced=1)
    assert [(t.tenant, t.kind, t.misplaced) for t in report.by] == [
        ("acme", KIND, 0),
        ("default", "", 1),
        ("default", KIND, 0),
    ]


def test_points_of_a_version_that_is_retired(scene: Scene) -> None:
    ev = scene.world.ev
    table = "evervec.versions" if scene.world.store_name == "postgres" else "evervec_versions"
    run_sql(scene.world, f"update {table} set state = 'retired'")
    assert ev.verify().found == {"misplaced": 6}, "only its own tenant's"
    assert ev.verify(repair=True).found == {"misplaced": 6}
    assert ev.verify().found == {}
    report = ev.verify(repair=True, all_tenants=True)
    assert [(t.tenant, t.kind, t.misplaced) for t in report.by] == [("acme", KIND, 1)]
    assert ev.verify(all_tenants=True).found == {}


@on("qdrant", "qdrant-memory", "qdrant-edge")
def test_points_that_others_put_into_a_collection(scene: Scene) -> None:
    """Without number, version or tenant they are found by nobody else."""
    scene.harm(scene.saboteur.copy, "0", record=None)
    scene.harm(scene.saboteur.copy, "1", version=None)
    scene.harm(scene.saboteur.copy, "2", version=None, tenant=None, record=None)
    check(scene, misplaced=3)


@on(*INDEXES)
def test_all_of_it_at_once(scene: Scene) -> None:
    harm, saboteur = scene.harm, scene.saboteur
    harm(saboteur.delete, "0")
    harm(saboteur.alter, "1", seq=1)
    harm(saboteur.alter, "2", hash=hash_text("something else"))
    harm(saboteur.copy, "3", tenant="acme", hash=hash_text("planted"))
    harm(saboteur.misplace, "4")
    drop_ledger(scene.world, scene.record("5"))
    if saboteur.doubles:
        harm(saboteur.copy, "4")
    doubled = {"doubled": 1} if saboteur.doubles else {}
    check(scene, missing=2, stale=2, orphaned=2, misplaced=1, **doubled)
