"""Schedules that failed once, kept."""

from explorer.replaying import Line, replay
from explorer.scopes import Scope


def test_nothing_is_written_for_a_version_that_is_gone() -> None:
    """A worker that stood still for longer than a retired version is kept, and for less than its
    lease, left points of no version in an index apart from the store."""
    scope = Scope(
        index="model",
        actors={
            "worker2": ("worker", 1, 8),
            "application1": ("holder", (("add", "2", "D"),), "commit", 10, 0),
            "changer": ("changer", ("migrate", "cancel", "wait", "step")),
        },
        before=(("add", "0", "C"),),
        faults=(),
        most_faults=0,
    )
    schedule: list[Line] = [
        ("worker2", 4), ("changer", 3), ("worker2", 1), ("changer", 1), ("worker2", 6),
        ("application1", 2), ("worker2", 12), ("changer", 1),
    ]  # fmt: skip
    assert replay(scope, schedule) == []


def test_a_search_outlasts_the_version_that_it_began_with() -> None:
    """A search that waited for its provider while its version was retired and dropped found
    nothing."""
    scope = Scope(
        index="model",
        actors={
            "worker1": ("worker", 1, 8),
            "changer": ("changer", ("migrate", "step", "step", "retire", "wait", "step")),
            "searcher": ("searcher", (("default", "note", "2"),), 1),
        },
        before=(("add", "2", "B"),),
        faults=("pause",),
        options={},
    )
    schedule: list[Line] = [("changer", 16), ("worker1", 19), ("searcher", 3), ("changer", 1)]
    assert replay(scope, schedule) == []


def test_a_boxed_record_can_be_deleted_between_a_switch_and_the_passing_on_of_its_box() -> None:
    """The delete looked only at the job of the version that serves, said that there was nothing to
    delete, and the record appeared afterwards."""
    scope = Scope(
        index="model",
        actors={
            "migrator": ("migrator", 2, False),
            "application": ("application", (("boxed", "1", "A"), ("delete", "1"))),
        },
        before=(("add", "0", "C"),),
        faults=(),
        most_faults=0,
        built=True,
    )
    schedule: list[Line] = [("application", 2), ("migrator", 27), ("application", 1)]
    assert replay(scope, schedule) == []


def test_points_that_come_after_their_version_was_dropped_are_removed() -> None:
    """A worker stood still for longer than its lease before it wrote, while the change of model was
    cancelled and its version dropped: the points stayed in the index, of a version that nobody
    knew."""
    scope = Scope(
        index="model",
        actors={
            "worker1": ("worker", 2, 8),
            "application1": ("holder", (("add", "1", "A"),), "commit", 10, 10),
            "changer": ("changer", ("migrate", "step", "cancel", "step")),
        },
        before=(("add", "2", "B"),),
        faults=("pause", "crash", "lost"),
        options={},
    )
    schedule: list[Line] = [
        ("worker1", 1), ("changer", 2), ("worker1", 1), ("changer", 2), ("worker1", 1),
        ("changer", 2), ("worker1", 1), ("application1", 2), ("worker1", 5), ("changer", 1),
        ("worker1", 2), ("changer", 2), ("worker1", 2), ("changer", 1), ("worker1", 1),
        ("changer", 1), ("worker1", 1), ("changer", 1), ("worker1", 1), ("changer", 1),
        ("worker1", 1), ("changer", 1), ("worker1", 1), ("changer", 1), ("worker1", 3),
        ("changer", 1), ("worker1", 2), ("changer", 1), ("worker1", 4), ("changer", 1),
        ("worker1", 3), ("changer", 1), ("worker1", 1), ("changer", 1), ("worker1", 4),
        ("changer", 1), ("worker1", 1), ("changer", 1), ("worker1", 2), ("changer", 1),
        ("world", "pause"), ("changer", 1),
    ]  # fmt: skip
    assert replay(scope, schedule) == []


def test_a_text_that_is_added_plainly_after_its_box_was_lost_is_seen_at_once() -> None:
    scope = Scope(
        index="model",
        actors={
            "application": (
                "application",
                (("boxed", "2", "A", "other"), ("add", "2", "A", "other")),
            ),
            "searcher": ("searcher", (("other", "note", "1"), ("other", "note", "2")), 2),
        },
        before=(("add", "2", "C"),),
        faults=("crash", "pause", "lost", "away", "power", "part"),
        most_faults=2,
        options={},
        restarts=True,
    )
    assert replay(scope, [("world", "power")]) == []


def test_a_box_that_is_passed_on_after_a_switch_is_waited_for() -> None:
    """A switch passes boxes on after it; until then the version that serves had nothing to do, and the
    ticket of the box seemed settled."""
    scope = Scope(
        index="model",
        actors={
            "worker1": ("worker", 1, 1),
            "worker2": ("worker", 1, 8),
            "application": (
                "application",
                (("delete", "1"), ("boxed", "1", "D"), ("enqueue", "1")),
            ),
            "migrator": ("migrator", 2, False),
        },
        before=(("add", "1", "D"),),
        faults=("pause",),
        most_faults=0,
        options={},
        built=True,
    )
    schedule: list[Line] = [
        ("worker1", 4),
        ("application", 1),
        ("worker1", 1),
        ("application", 2),
        ("worker1", 1),
        ("worker2", 1),
        ("worker1", 1),
        ("worker2", 1),
        ("worker1", 1),
        ("worker2", 2),
        ("worker1", 2),
        ("application", 1),
        ("worker2", 10),
        ("migrator", 1),
    ]
    assert replay(scope, schedule) == []


def test_a_version_without_an_opened_box_does_not_serve() -> None:
    """The new version had indexed the old text beside the box, with a later number than the box had, so
    it seemed to be up to date."""
    scope = Scope(
        index="own",
        actors={
            "worker1": ("worker", 1, 1),
            "worker2": ("worker", 1, 1),
            "application": ("application", (("boxed", "1", "C"), ("enqueue", "1"))),
            "migrator": ("migrator", 3, True),
        },
        before=(("add", "1", "A"),),
        faults=(),
        options={},
        built=True,
    )
    schedule: list[Line] = [
        ("worker2", 2),
        ("application", 2),
        ("worker2", 1),
        ("application", 1),
        ("worker2", 7),
        ("worker1", 1),
    ]
    assert replay(scope, schedule) == []


def test_a_text_that_is_there_before_it_comes_in_a_box_is_not_out_of_the_box() -> None:
    """It was added plainly, and seen without vectors before the boxed add had committed."""
    scope = Scope(
        index="model",
        actors={
            "application": ("application", (("add", "1", "B"), ("boxed", "1", "B"))),
            "searcher": ("searcher", (("default", "note", "1"),), 2),
        },
        before=(("add", "0", "B"),),
        faults=(),
        most_faults=0,
        options={},
    )
    assert replay(scope, [("application", 2), ("searcher", 1)]) == []
