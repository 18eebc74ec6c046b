"""Commands that people copy from a page: they open the store that the page is about."""

from __future__ import annotations

import shlex
from pathlib import Path

from evervec.server.keys import Role
from evervec.server.view import View
from evervec.stores.location import sqlite_path
from evervec.telemetry.visible import without_secrets

_IN_MEMORY = "memory:"


def cli(view: View) -> str | None:
    """`evervec` with the options that name this store and tenant. None for who may not know where the
    store is, and for a store in memory, which no other process can open. A password is left out."""
    url = view.ev.store.url
    if view.caller.role is not Role.ADMIN or url.startswith(_IN_MEMORY):
        return None
    path = sqlite_path(url)
    place = str(Path(path).resolve()) if path is not None else without_secrets(url)
    words = ["evervec", f"--store={place}"]
    words += [f"--tenant={view.tenant}"] if view.tenant != "default" else []
    return shlex.join(words)
