"""The access log: a line for each request, with who sent it and how long it took.

It has neither bodies nor queries nor keys. Requests of monitoring and of the dashboard's own files,
which come by the thousand and tell nothing, are logged only at the level DEBUG.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from evervec.server.requests import Scope, path_of
from evervec.telemetry.logs import JsonFormatter
from evervec.telemetry.visible import VisibleFilter

log = logging.getLogger("evervec.access")

_FORMAT = "%(asctime)s %(message)s"
_LONGEST_PATH = 300
_PATHS = frozenset({"/healthz", "/readyz", "/metrics", "/favicon.ico"})
_ASSETS = "/ui/assets/"


def log_request(scope: Scope, status: int, seconds: float) -> None:
    """Log a request that has ended."""
    path = path_of(scope)
    level = logging.DEBUG if path in _PATHS or path.startswith(_ASSETS) else logging.INFO
    if not log.isEnabledFor(level):
        return
    caller = scope.get("caller")
    who = f"{caller.tenant}/{caller.agent}" if caller else "-"
    client, id = scope.get("client_address") or "-", scope["request_id"]
    log.log(
        level, "%s %s %s %s %d %.1f ms (%s)",
        client, who, scope["method"], scope["path"][:_LONGEST_PATH], status, 1000 * seconds, id,
        extra={
            "request_id": id, "status": status, "method": scope["method"], "client": client,
            "path": scope["path"][:_LONGEST_PATH], "ms": round(1000 * seconds, 1),
            "tenant": caller.tenant if caller else None, "agent": caller.agent if caller else None,
        },
    )  # fmt: skip


@contextmanager
def showing_requests() -> Iterator[None]:
    """Write the access log to stderr inside the block, for `evervec serve`: with the time, or as
    JSON if the other lines are."""
    before = log.level, log.propagate
    root = logging.getLogger()
    is_json = any(isinstance(each.formatter, JsonFormatter) for each in root.handlers)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORMAT))
    handler.addFilter(VisibleFilter())
    log.setLevel(logging.INFO)
    if not is_json:
        log.addHandler(handler)
        log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = before[1]
        log.setLevel(before[0])
