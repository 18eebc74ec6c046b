"""The large scopes, made by chance from a seed."""

import random
from typing import Any

from explorer.actors import KIND, ROW, Op
from explorer.scopes import ANY, MANY, Scope
from explorer.steps import AWAY, CRASH, LOST, PART, PAUSE, POWER

TEXTS = ("A", "B", "C", "D")
OTHER = "other"
"""a second tenant"""


def large_scope(rng: random.Random, number: int | None = None) -> Scope:
    """One of the large scopes; `number`: of scopes that are tried one after the other, so that each
    sort has its turn."""
    if number is None:
        return rng.choice(_FAMILIES)(rng)
    return _FAMILIES[number % len(_FAMILIES)](rng)


_MOTIFS = (
    ("add A",), ("add B",), ("add", ), ("delete",), ("boxed",), ("enqueue",),
    ("add B", "add A"), ("delete", "add A"), ("delete", "boxed"), ("boxed", "add B"),
    ("undone", "enqueue"), ("boxed", "undone", "enqueue"),
)  # fmt: skip
"""what applications do to one record, one change after the other: much of it comes back"""


def _ops(rng: random.Random, count: int, ids: str, tenants: tuple[str, ...] = ()) -> list[Op]:
    ops: list[Op] = []
    while len(ops) < count:
        id, tenant = rng.choice(ids), rng.choice(tenants or ("default",))
        for motif in rng.choice(_MOTIFS):
            what, _, text = motif.partition(" ")
            op: Op = (what, id)
            if what in ("add", "boxed", "undone"):
                op += (text or rng.choice(TEXTS),)
            ops.append(op if tenant == "default" else (*op, tenant))
    return ops


def _workers(rng: random.Random, most: int) -> dict[str, tuple[Any, ...]]:
    count = rng.randint(2, most)
    return {f"worker{n + 1}": ("worker", rng.randint(1, 3), 8) for n in range(count)}


def _index(rng: random.Random) -> str:
    return rng.choice(("model", "model", "own"))


def _before(rng: random.Random, ids: str) -> tuple[Op, ...]:
    return (("add", "0", "C"), *(("add", i, rng.choice(TEXTS)) for i in ids if rng.random() < 0.6))


def _some(rng: random.Random, actors: dict[str, tuple[Any, ...]], share: float) -> dict[str, Any]:
    return {name: made for name, made in actors.items() if rng.random() < share}


def _fleet(rng: random.Random) -> Scope:
    """Workers, an application with two tenants, searches, push mode, repair, sweeps."""
    ids = "12" if rng.random() < 0.5 else "1"
    keys = [(t, KIND, i) for t in ("default", OTHER) for i in ids]
    actors = {
        **_workers(rng, 3),
        "application": ("application", tuple(_ops(rng, rng.randint(2, 5), ids, ("default", OTHER)))),
        **_some(rng, {
            "searcher": ("searcher", tuple(keys), rng.randint(1, 3)),
            "pusher": ("pusher", rng.randint(1, 2)),
            "repairer": ("repairer", 1),
            "sweeper": ("sweeper", 1),
        }, 0.4),
    }  # fmt: skip
    return Scope(
        _index(rng), actors, _before(rng, ids), rng.choice((ANY, MANY, (CRASH, PAUSE))),
        rng.randint(0, 3), restarts=rng.random() < 0.5,
    )  # fmt: skip


def _tables(rng: random.Random) -> Scope:
    """An attached table beside everything that opens jobs again."""
    ids = "12" if rng.random() < 0.3 else "1"
    rows = tuple((i, rng.choice(TEXTS)) for i in ids if rng.random() < 0.6)
    ops = [
        ("row", rng.choice(ids), rng.choice((*TEXTS[:2], *TEXTS[:2], None)))
        for _ in range(rng.randint(1, 4))
    ]
    keys = [("default", ROW, i) for i in ids]
    actors = {
        **_workers(rng, 3),
        "table": ("table", tuple(ops)),
        **_some(rng, {
            "repairer": ("repairer", rng.randint(1, 2)),
            "migrator": ("migrator", rng.randint(2, 6), rng.random() < 0.5),
            "searcher": ("searcher", tuple(keys), rng.randint(1, 2)),
            "enqueuer": ("enqueuer", rng.randint(1, 2), ids),
        }, 0.45),
    }  # fmt: skip
    return Scope(
        _index(rng), actors, (("add", "0", "C"),), rng.choice(((), ANY, (CRASH, PAUSE), (PAUSE,))),
        rng.randint(1, 2), restarts=True, table=rows,
    )  # fmt: skip


def _migration(rng: random.Random) -> Scope:
    """A change of model while records change and searches go on."""
    ids = "12"
    actors = {
        **_workers(rng, 2),
        "application": ("application", tuple(_ops(rng, rng.randint(1, 4), ids))),
        "migrator": ("migrator", rng.randint(2, 8), rng.random() < 0.6),
        **_some(rng, {
            "searcher": ("searcher", tuple(("default", KIND, i) for i in ids), rng.randint(1, 3)),
            "sweeper": ("sweeper", 1),
        }, 0.5),
    }  # fmt: skip
    return Scope(
        _index(rng), actors, _before(rng, ids), rng.choice(((), ANY)), rng.randint(0, 2),
        restarts=True,
    )  # fmt: skip


def _outages(rng: random.Random) -> Scope:
    """What is away spends no attempt: with a single one nothing may fail."""
    ids = "123"
    actors = {
        **_workers(rng, 2),
        "application": ("application", tuple(_ops(rng, rng.randint(1, 3), ids))),
    }
    if rng.random() < 0.3:
        actors["pusher"] = ("pusher", 1)
    return Scope(
        _index(rng), actors, _before(rng, ids), rng.choice(((AWAY,), (AWAY, LOST))),
        rng.randint(1, 3), {"max_attempts": 1}, restarts=True,
    )  # fmt: skip


def _poisoned(rng: random.Random) -> Scope:
    """A record that kills its worker fails alone."""
    ids = "12345"[: rng.randint(2, 5)]
    bad = rng.choice(ids)
    ops: list[Op] = [("add", i, "poison" if i == bad else rng.choice(TEXTS)) for i in ids]
    actors = {
        **{f"worker{n + 1}": ("worker", 6, 8) for n in range(rng.randint(1, 2))},
        "application": ("application", tuple(ops)),
    }
    return Scope(
        _index(rng), actors, (("add", "0", "C"),), (), 0,
        {"max_attempts": rng.choice((1, 1, 2, 3))}, restarts=True, failing=(bad,), verifies=False,
    )  # fmt: skip


def _power(rng: random.Random) -> Scope:
    """Power cuts: what was acknowledged stays, and the index is never ahead for good. Workers that
    take one job at a time write often between two changes, and so leave much that is not synced."""
    ids = "123456"[: rng.randint(1, 6)]
    before = tuple(("add", id, rng.choice(TEXTS)) for id in ids)
    waiting = tuple(("add", id, rng.choice(TEXTS)) for id in ids if rng.random() < 0.8)
    ops = _ops(rng, rng.randint(1, 3), ids)
    if rng.random() < 0.5:  # some texts come back to what they were
        ops = rng.sample(before, rng.randint(1, len(before)))
    actors = {
        **{f"worker{n + 1}": ("worker", rng.randint(2, 5), rng.choice((1, 8))) for n in range(2)},
        "application": ("application", tuple(ops)),
        **_some(rng, {
            "repairer": ("repairer", 1),
            "migrator": ("migrator", rng.randint(2, 4), False),
        }, 0.3),
    }  # fmt: skip
    others = rng.choice(((), (), (PAUSE, CRASH, PART)))
    return Scope(
        "model", actors, before, (POWER, *others), rng.randint(1, 1 + len(others)),
        restarts=True, waiting=waiting,
    )  # fmt: skip


def _ahead(rng: random.Random) -> Scope:
    """One worker writes many records one by one, the power is cut, and one of the last changes
    again: what the index has is then numbered higher than what the store gives out."""
    ids = "123456"[: rng.randint(3, 6)]
    waiting = tuple(("add", id, rng.choice("BC")) for id in ids)
    actors = {
        "worker1": ("worker", rng.choice((len(ids) - 1, len(ids))), 1),
        "application": ("application", (rng.choice((("add", ids[-1], "D"), ("delete", ids[-1]))),)),
    }
    return Scope(
        "model", actors, tuple(("add", id, "A") for id in ids), (POWER,), 1, restarts=True,
        waiting=waiting,
    )  # fmt: skip


_ROWS = (("A", "C", "D"), ("A", "C", "D"), ("A", "C", "D"), ("A", "C", None))
"""texts of a row, where None stands for its end"""


def _passed(rng: random.Random) -> Scope:
    """Two workers at one record, of which one stands still and is passed by the other: a small
    scope with a fault, of which trying everything would take long."""
    ops: list[Op] = [("row", "1", text) for text in rng.sample(rng.choice(_ROWS), 2)]
    writer, before, rows = "table", list[Op](), (("1", "B"),)
    faults: tuple[str, ...] = (PAUSE,)
    by_hand = rng.random() < 0.4
    if by_hand:
        ops, writer, before = _ops(rng, rng.randint(2, 3), "1"), "application", [("add", "1", "A")]
        faults = rng.choice(((PAUSE,), (PAUSE, CRASH), (CRASH, LOST, PART)))
    workers = {f"worker{n + 1}": ("worker", rng.choice((1, 2, 2))) for n in range(2)}
    return Scope(
        "model", {**workers, writer: (writer, tuple(ops[1:]))}, tuple(before), faults,
        rng.randint(1, 2), restarts=rng.random() < 0.5, table=None if by_hand else rows,
        waiting=(ops[0],),
    )  # fmt: skip


def repaired_scope(rng: random.Random, surplus: str) -> Scope:
    """An operator takes out points that somebody else put there (`surplus`: of which text), and is
    overtaken by a worker that writes such points rightly."""
    actors: dict[str, tuple[Any, ...]] = {
        "repairer": ("repairer", 1),
        "worker1": ("worker", 1),
        "application": ("application", (("add", "1", rng.choice("BD")),)),
    }
    return Scope(
        "model", actors, (("add", "1", "A"),), rng.choice(((), (PAUSE,))), 1,
        damaged=(("1", surplus),), verifies=False,
    )  # fmt: skip


def overtaken_scope(rng: random.Random) -> Scope:
    """Two workers at one record that changes again, of which one is overtaken and dies."""
    worker = ("worker", rng.choice((1, 1, 2)))
    before: tuple[Op, ...] = (("add", "1", "A"),)
    # where a chunk is kept, the index may lack it then, and the worker takes its change back
    waiting: tuple[Op, ...] = (rng.choice((("add", "1", "C"), ("delete", "1"), ("add", "1", "B"))),)
    ops = tuple(op for op in _ops(rng, rng.randint(1, 2), "1") if op[0] != "undone")
    actors: dict[str, tuple[Any, ...]] = {
        "worker1": worker, "worker2": worker, "application": ("application", ops),
    }  # fmt: skip
    return Scope(
        "model", actors, before, (PAUSE, CRASH), 2, restarts=rng.random() < 0.3, waiting=waiting
    )


def _switched(rng: random.Random) -> Scope:
    """A version that has all takes over, while records change and are on their way."""
    ids = "12" if rng.random() < 0.3 else "1"
    ops = tuple(_ops(rng, rng.randint(1, 3), ids))
    if rng.random() < 0.5:
        ops = (("boxed", "2", rng.choice(TEXTS)), rng.choice((ops[0], ("delete", "2"))))
    actors = {
        **{f"worker{n + 1}": ("worker", rng.randint(1, 3), rng.choice((1, 8))) for n in range(2)},
        "application": ("application", ops),
        "migrator": ("migrator", rng.randint(2, 4), rng.random() < 0.6),
        **_some(rng, {"sweeper": ("sweeper", 1)}, 0.2),
    }
    return Scope(
        _index(rng), actors, _before(rng, "1"), rng.choice(((), (), (PAUSE,), ANY)),
        rng.randint(0, 2), restarts=True, built=True,
    )  # fmt: skip


_FAMILIES = (
    _passed, _ahead, _switched, _power, _fleet, _outages, _passed, _tables, _migration,
    _passed, _power, _switched, _poisoned, _fleet, _passed, _outages, _power, _tables,
)  # fmt: skip
"""in the order in which they are tried"""
