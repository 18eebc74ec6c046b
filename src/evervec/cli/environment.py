"""Environment variables that look like settings and are none: mistyped, they would be ignored silently."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields

from evervec.runtime.setting import variables_of

_PREFIX = "EVERVEC_"
_OPTIONS = frozenset({"STORE", "INDEX", "EMBEDDER", "KEY", "LOG_JSON"})
_DEVELOPMENT = ("BENCH_", "TEST_", "STRESS_", "EDITS")
_CLUSTER = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$")
"""what Kubernetes sets in each container for a service that is called evervec"""


def unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """A sentence about each variable `EVERVEC_…` that has no meaning."""
    given = [name for name in sorted(environ) if name.startswith(_PREFIX)]
    names = {name.removeprefix(_PREFIX) for name in given} - _OPTIONS
    if not names:
        return
    from evervec.settings import Settings  # few commands are started with such variables

    known = variables_of(fields(Settings)) | {_PREFIX + name for name in _OPTIONS}
    similar = {other.removeprefix(_PREFIX): other for other in known}
    for name in given:
        if name in known or _CLUSTER.search(name):
            continue
        if name.removeprefix(_PREFIX).startswith(_DEVELOPMENT):
            continue
        # without the prefix, which would make all names similar
        close = difflib.get_close_matches(name.removeprefix(_PREFIX), similar, 1)
        hint = f"did you mean {similar[close[0]]}?" if close else "see docs/settings.md"
        yield f"{name} is not a setting; {hint}"
