"""How much Python code runs: lines, calls and returns, counted by the interpreter itself."""

import sys
from collections.abc import Callable
from typing import Any


def python_steps(do: Callable[[], object]) -> int:
    """What is counted of one call; generators count each time that they go on."""
    count = 0

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
    return count
