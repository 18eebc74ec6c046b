"""Running a schedule that is written down, and making it shorter while it still fails.

A schedule says who goes on, step by step. What it names and is not there is passed over, and where
it ends the actors go on one after the other: so any part of a schedule is a schedule again.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from explorer.actors import Op
from explorer.ruling import ruled
from explorer.scopes import Result, Scope, Stage
from explorer.steps import GO, WORLD, Choice
from explorer.world import Process, World

_clock = time.monotonic
Line = tuple[str, int | str]
"""an actor, and how many steps it goes on or which fault its next step meets"""


def replay(scope: Scope, lines: Sequence[Line]) -> list[str]:
    """Run a schedule; what was wrong."""
    with ruled():
        return Stage(scope).run(following(scope, expanded(lines))).problems or []


def following(scope: Scope, choices: Sequence[Choice]) -> Callable[[World, list[Process]], Choice]:
    """Decide as a list of choices says."""
    left = list(reversed(choices))

    def decide(world: World, waiting: list[Process]) -> Choice:
        there = {p.name: p for p in waiting}
        while left:
            choice = left.pop()
            if choice.actor == WORLD:
                return choice
            p = there.get(choice.actor)
            if p is not None and (choice.action == GO or choice.action in scope.allowed(p)):
                return choice
        last = next((h.choice.actor for h in reversed(world.happened)), "")
        return Choice(last if last in there else waiting[0].name)

    return decide


def expanded(lines: Sequence[Line]) -> list[Choice]:
    choices: list[Choice] = []
    for actor, what in lines:
        choices += [Choice(actor)] * what if isinstance(what, int) else [Choice(actor, what)]
    return choices


def compressed(choices: Sequence[Choice]) -> list[Line]:
    lines: list[Line] = []
    for actor, action in choices:
        last = lines[-1] if lines else ("", "")
        if action == GO and last[0] == actor and isinstance(last[1], int):
            lines[-1] = (actor, last[1] + 1)
        else:
            lines.append((actor, 1 if action == GO else action))
    return lines


class Shrunk:
    """A failing schedule, made as short as it can be by leaving parts out."""

    def __init__(
        self,
        scope: Scope,
        choices: Sequence[Choice],
        make: Callable[[Scope], Stage] = Stage,
        tries: int = 1500,
        seconds: float = 30.0,
    ) -> None:
        self._make = make
        self.scope = scope
        self.choices = list(choices)
        self._tries, self._end = tries, _clock() + seconds
        self._stage = make(scope)
        self.result = self._run(self.choices)
        self._alike = _likes(self.result)
        if self.result.problems:
            self._shrink()

    def _run(self, choices: Sequence[Choice]) -> Result:
        self._tries -= 1
        return self._stage.run(following(self.scope, choices))

    def _is_over(self) -> bool:
        return self._tries <= 0 or _clock() > self._end

    def _fails(self, choices: Sequence[Choice]) -> bool:
        if self._is_over():
            return False
        result = self._run(choices)
        if not self._alike & _likes(result):
            return False
        self.choices, self.result = list(choices), result
        return True

    def _shrink(self) -> None:
        before = -1
        while before != self._size():
            before = self._size()
            self._shrink_scope()
            self._shrink_choices()

    def _size(self) -> int:
        return len(self.choices) + len(repr(self.scope))

    def _shrink_choices(self) -> None:
        """Delta debugging: leave out ever smaller parts."""
        size = max(1, len(self.choices) // 2)
        while True:
            start = 0
            while start < len(self.choices):
                rest = self.choices[:start] + self.choices[start + size :]
                if not self._fails(rest):
                    start += size
            if size == 1:
                return
            size //= 2

    def _shrink_scope(self) -> None:
        """Leave out actors, what they do, and what was there before."""
        again = True
        while again and not self._is_over():
            again = False
            for smaller in _smaller(self.scope):
                if self._is_over():
                    return
                stage = self._make(smaller)
                self._tries -= 1
                result = stage.run(following(smaller, self.choices))
                if self._alike & _likes(result):
                    self.scope, self._stage, self.result = smaller, stage, result
                    again = True
                    break


def _likes(result: Result) -> set[str]:
    """What is wrong, without names and numbers: a shorter schedule must fail in the same way."""
    return {
        re.sub(r"[\d'\"]+", "", problem.split(": ", 1)[-1])[:24]
        for problem in result.problems or ()
        if not problem.startswith("(")
    }


def _smaller(scope: Scope) -> Iterator[Scope]:
    for name in scope.actors:
        rest = {n: made for n, made in scope.actors.items() if n != name}
        yield replace(scope, actors=rest)
    for name, (make, *given) in scope.actors.items():
        if given and isinstance(given[0], tuple):
            for place in range(len(given[0])):
                fewer: tuple[Op, ...] = given[0][:place] + given[0][place + 1 :]
                yield replace(scope, actors={**scope.actors, name: (make, fewer, *given[1:])})
        elif given and isinstance(given[0], int) and given[0] > 1:
            yield replace(scope, actors={**scope.actors, name: (make, given[0] - 1, *given[1:])})
    for place in range(len(scope.before)):
        yield replace(scope, before=scope.before[:place] + scope.before[place + 1 :])
    for place in range(len(scope.waiting)):
        yield replace(scope, waiting=scope.waiting[:place] + scope.waiting[place + 1 :])
    if scope.restarts:
        yield replace(scope, restarts=False)
