"""How long the body of a request may be, by its path.

Only an add needs a long one. A form of the dashboard is short, and anybody may send one to sign in.
"""

from __future__ import annotations

from typing import NamedTuple

from evervec.server.problems import Problem
from evervec.settings import Settings

_BATCH = ("POST", "/v1/records/batch")
_ADD = ("POST", "/v1/records")
PUSH_PATHS = "/internal/"
"""these routes check their own credentials"""
_FORMS = "/ui/"
_OF_SELECTED_JOBS = "/ui/jobs/bulk"
"""its form has the number of each job"""


class _Most(NamedTuple):
    """A limit, and what to do about it."""

    size: int
    advice: str


class BodyLimits:
    """The limits of one service."""

    def __init__(self, settings: Settings) -> None:
        longest, query = settings.server_body_mb, settings.server_query_mb
        self._add = _Most(
            int(longest * 1e6), "send less, use /v1/records/batch, or raise server_body_mb"
        )
        self._other = _Most(int(min(longest, query) * 1e6), "send less, or raise server_query_mb")
        self._delivery = _Most(1 << 16, "a delivery has no more")
        self._form = _Most(1 << 14, "send a shorter form")
        self._long_form = _Most(1 << 16, "select fewer")

    def of(self, method: str, path: str) -> int | None:
        """The most bytes of a body; None: a batch, which has limits of its own."""
        found = self._find(method, path)
        return found and found.size

    def refusal(self, method: str, path: str) -> Problem:
        """The response to a longer body."""
        found = self._find(method, path)
        assert found is not None
        return Problem(413, f"the body is larger than {found.size:,} bytes: {found.advice}")

    def _find(self, method: str, path: str) -> _Most | None:
        if path.startswith("/v1/"):
            if (method, path) == _ADD:
                return self._add
            return None if (method, path) == _BATCH else self._other
        if path.startswith(PUSH_PATHS):
            return self._delivery
        if path.startswith(_FORMS):
            return self._long_form if path == _OF_SELECTED_JOBS else self._form
        return self._other
