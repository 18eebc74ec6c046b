"""The stores of Django's databases: where each is, and the open ones of this process."""

from __future__ import annotations

import atexit
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from django.db import connections

import evervec
from evervec.errors import SettingsError
from evervec.integrations.django.conf import Configuration

_LIBPQ = frozenset(
    {
        "application_name", "channel_binding", "connect_timeout", "gssencmode", "hostaddr",
        "keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval", "krbsrvname",
        "options", "passfile", "service", "sslcert", "sslcrl", "sslkey", "sslmode", "sslpassword",
        "sslrootcert", "target_session_attrs", "tcp_user_timeout",
    }
)  # fmt: skip
"""options of a PostgreSQL connection that are passed on; Django's own are not"""


def store_url(alias: str) -> str:
    """The store of a database: the database itself, unless EVERVEC names another store."""
    return Configuration.read().store or own_url(alias)


def own_url(alias: str) -> str:
    """A database of Django's as the URL of a store. It is read again each time, because tests
    change the name of the database."""
    connection = connections[alias]
    given = connection.settings_dict
    if connection.vendor == "sqlite":
        if is_in_memory(connection):
            raise SettingsError(
                f"the database {alias!r} is in memory, where no other connection reaches it: use a "
                "file, or in tests evervec.integrations.django.test"
            )
        name = str(given["NAME"])
        return unquote(urlsplit(name).path) if name.startswith("file:") else name
    if connection.vendor != "postgresql":
        raise SettingsError(
            f"the database {alias!r} is {connection.display_name}: models are searched in SQLite "
            "and PostgreSQL, or set EVERVEC['STORE'] and run `manage.py evervec_sync`"
        )
    params = connection.get_connection_params()
    user, password = params.get("user"), params.get("password")
    login = quote(user or "", safe="") + (f":{quote(password, safe='')}" if password else "")
    if role := given["OPTIONS"].get("assume_role"):  # what Django sets after it has connected
        escaped = re.sub(r"([\\ ])", r"\\\1", role)
        params["options"] = f"{params.get('options', '')} -c role={escaped}".strip()
    more = {
        "dbname": params.get("dbname"), "host": params.get("host"), "port": params.get("port"),
        **{name: value for name, value in params.items() if name in _LIBPQ},
    }  # fmt: skip
    query = urlencode({name: value for name, value in more.items() if value}, quote_via=quote)
    return f"postgresql://{login}{'@' if login else ''}/?{query}"


def is_in_memory(connection: Any) -> bool:
    return bool(connection.vendor == "sqlite" and connection.is_in_memory_db())


def open_store(alias: str, **changed: Any) -> evervec.Evervec:
    """Open the store of a database; the caller closes it. `changed`: instead of what EVERVEC
    says."""
    read = Configuration.read()
    return _open(read.store or own_url(alias), read, {"index": read.index, **changed})


def open_own_store(alias: str, **changed: Any) -> evervec.Evervec:
    """Open the store inside a database, even if EVERVEC names another one."""
    read = Configuration.read()
    index = None if read.store else read.index
    return _open(own_url(alias), read, {"index": index, **changed})


def _open(url: str, read: Configuration, changed: dict[str, Any]) -> evervec.Evervec:
    given: dict[str, Any] = {"tenant": read.tenant, **read.options, **changed}
    if "embedder" not in given:
        given["embedder"] = read.make_embedder()
    return evervec.open(url, **given)


class OpenStores:
    """The stores that this process searches, opened when they are first needed. A process that was
    forked opens its own."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open: dict[tuple[int, str], evervec.Evervec] = {}
        self._instead: Any = None

    def get(self, alias: str) -> evervec.Evervec:
        if self._instead is not None:
            found: evervec.Evervec = self._instead(alias)
            return found
        key = os.getpid(), store_url(alias)
        with self._lock:
            if key not in self._open:
                self._open[key] = open_store(alias)
            return self._open[key]

    def close(self) -> None:
        """Close the stores of this process."""
        with self._lock:
            for key in [key for key in self._open if key[0] == os.getpid()]:
                self._open.pop(key).close()

    @contextmanager
    def replaced(self, instead: Any) -> Iterator[None]:
        """Have `instead(alias)` give the stores, for tests."""
        before, self._instead = self._instead, instead
        try:
            yield
        finally:
            self._instead = before


STORES = OpenStores()
atexit.register(STORES.close)
os.register_at_fork(after_in_child=STORES.__init__)  # type: ignore[misc]
