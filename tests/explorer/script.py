"""A failing schedule for people to read, and as a test to keep."""

from collections.abc import Sequence
from dataclasses import fields

from explorer.replaying import Shrunk, compressed
from explorer.scopes import Scope
from explorer.steps import FAULTS, GO, WORLD, Happened


def told(shrunk: Shrunk, source: str) -> str:
    """What happens in the schedule, what is wrong at its end, and the test."""
    scope = shrunk.scope
    lines = [
        f"FAILED ({source})",
        "",
        f"index: {scope.index}; before: {_before(scope)}",
        *(f"{name}: {' '.join(map(str, made))}" for name, made in scope.actors.items()),
        "",
        *_steps(shrunk.result.world.happened),
        "",
        *(f"WRONG: {problem}" for problem in (shrunk.result.problems or ())[:12]),
        "",
        "As a test:",
        "",
        as_test(shrunk),
    ]
    return "\n".join(lines)


def _before(scope: Scope) -> str:
    parts = [" ".join(map(str, op)) for op in scope.before]
    parts += [f"row {id} {text}" for id, text in scope.table or ()]
    parts += [f"{' '.join(map(str, op))} (waits)" for op in scope.waiting]
    return ", ".join(parts) or "nothing"


def _steps(happened: Sequence[Happened]) -> list[str]:
    lines = []
    for number, (choice, step) in enumerate(happened, 1):
        if choice.actor == WORLD:
            lines.append(f"{number:4}  ** {FAULTS[choice.action]}")
            continue
        how = "writes" if step.writes else "reads"
        said = f"{number:4}  {choice.actor:12} {how:6} {step.resource}: {step.what}"
        lines.append(said if choice.action == GO else f"{said}  ** {FAULTS[choice.action]}")
    return lines


def as_test(shrunk: Shrunk) -> str:
    """Python source of a test that runs the schedule again."""
    scope = ",\n".join(
        f"        {f.name}={getattr(shrunk.scope, f.name)!r}"
        for f in fields(Scope)
        if getattr(shrunk.scope, f.name) != f.default
    )
    steps = "".join(f"        {line!r},\n" for line in compressed(shrunk.choices))
    return (
        "def test_a_schedule_that_failed() -> None:\n"
        f"    scope = Scope(\n{scope},\n    )\n"
        f"    schedule: list[Line] = [\n{steps}    ]\n"
        "    assert replay(scope, schedule) == []\n"
    )
