"""All ways to use a store have the same methods with the same arguments.

What differs on purpose is listed here with its reason; anything else fails, and the failure says what is
missing where.
"""

import inspect
from typing import Any

import pytest

from evervec import AsyncClient, AsyncEvervec, Client, Evervec, Migration, Queue
from evervec.aio.migration import AsyncMigration
from evervec.aio.queue import AsyncQueue
from evervec.client.awaited import (
    AsyncRemoteAudit,
    AsyncRemoteKeys,
    AsyncRemoteMigration,
    AsyncRemoteQueue,
    AsyncRemoteTokens,
)
from evervec.client.sync import (
    RemoteAudit,
    RemoteKeys,
    RemoteMigration,
    RemoteQueue,
    RemoteTokens,
)

LOCAL = {
    "of": "a client has the tenant of its key",
    "queue_of": "a client has the tenant of its key",
    "connection": "of the store's own database",
    "register": "kinds are Python objects of a process",
    "kinds": "rescoring is set by the process that has the kinds",
    "draft": "used by the service",
    "reads_fields": "used by followers of change streams",
    "prepare": "used by searches that embed their query apart",
    "limits": "GET /v1/tenants, of platform admins",
    "set_limits": "PUT /v1/tenants, of platform admins",
    "migration": "a migration is begun again by the same call",
    "estimate": "takes the embedder of a process",
    "drop_retired": "workers do it",
    "process_all": "workers run beside the service",
    "worker": "workers run beside the service",
    "run_worker": "workers run beside the service",
    "backfill": "workers do it; `evervec backfill` where the kinds are",
    "alerts": "/metrics",
    "attach": "`evervec attach`, by the owner of the database",
    "attach_again": "`evervec attach --again`, by the owner of the database",
    "detach": "`evervec detach`, by the owner of the database",
    "tables": "`evervec tables`, by the owner of the database",
    "export": "`evervec export`, beside the store: files are of a machine",
    "import_": "`evervec import`, beside the store: files are of a machine",
    "export_pending": "`evervec export --pending`, beside the store",
    "import_vectors": "`evervec import --vectors`, beside the store",
    "chunks": "the chunkers of kinds are Python objects of a process",
}
QUEUE_LOCAL = {
    "enqueue": "for rows that a process loads",
    "enqueue_many": "for rows that a process loads",
    "claim": "workers of the service do it",
    "content": "workers of the service do it",
    "finish": "workers of the service do it",
    "finish_many": "workers of the service do it",
    "fail": "workers of the service do it",
    "fail_many": "workers of the service do it",
    "release": "workers of the service do it",
    "release_many": "workers of the service do it",
    "postpone": "workers of the service do it",
    "renew": "workers of the service do it",
    "renew_many": "workers of the service do it",
}
ARGUMENTS = {
    "conn": "a transaction of this process",
    "rows": "rows of the application's tables stay with it",
    "progress": "a function of this process",
    "all_tenants": "a client has the tenant of its key",
    "own": "a client has the tenant of its key",
    "discreet": "the service decides by the key",
}
"""arguments of one way only"""
OF_A_METHOD = {
    ("records", "after"): "a client follows the cursors of pages by itself",
    ("jobs", "kind"): "see `status` and `history`",
    ("jobs", "id"): "see `status` and `history`",
    ("jobs", "after"): "a client follows the cursors of pages by itself",
    ("switch", "timeout"): "the request has its own",
}
DEFAULTS = {("wait", "timeout"): "the setting wait_seconds, which a client does not know"}


def methods(cls: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in inspect.getmembers(cls, callable)
        if not name.startswith("_") and name != "begin"
    }


def arguments(method: Any) -> dict[str, tuple[Any, Any]]:
    found = inspect.signature(method).parameters.values()
    return {given.name: (given.kind, given.default) for given in found if given.name != "self"}


PAIRS = [
    (Evervec, AsyncEvervec, {"prepare": "used by the search", "reads_fields": "used by followers"}),
    (Queue, AsyncQueue, {}),
    (Migration, AsyncMigration, {"timed_out": "used by the wait of both"}),
    (Evervec, Client, LOCAL),
    (Queue, RemoteQueue, QUEUE_LOCAL),
    (Migration, RemoteMigration, {"compare": "takes long", "timed_out": "used by the wait"}),
    (Client, AsyncClient, {}),
    (RemoteQueue, AsyncRemoteQueue, {}),
    (RemoteMigration, AsyncRemoteMigration, {}),
    (RemoteKeys, AsyncRemoteKeys, {}),
    (RemoteTokens, AsyncRemoteTokens, {}),
    (RemoteAudit, AsyncRemoteAudit, {}),
]


@pytest.mark.parametrize(
    ("one", "other", "lacking"), PAIRS, ids=lambda cls: getattr(cls, "__name__", "")
)
def test_both_have_the_same_methods(one: type, other: type, lacking: dict[str, str]) -> None:
    of_one, of_other = methods(one).keys(), methods(other).keys()
    wrong = [f"{other.__name__} has no method {name}" for name in of_one - of_other - set(lacking)]
    wrong += [f"{one.__name__} has no method {name}" for name in of_other - of_one]
    wrong += [f"{other.__name__} has {name} after all" for name in lacking.keys() & of_other]
    assert not wrong


@pytest.mark.parametrize(
    ("one", "other"), [pair[:2] for pair in PAIRS], ids=lambda cls: cls.__name__
)
def test_both_have_the_same_arguments(one: type, other: type) -> None:
    wrong = []
    of_one, of_other = methods(one), methods(other)
    is_local = ("client" in one.__module__) == ("client" in other.__module__)
    for name in of_one.keys() & of_other.keys():
        mine, theirs = arguments(of_one[name]), arguments(of_other[name])
        for which in mine.keys() | theirs.keys():
            if which not in mine or which not in theirs:
                place = one if which not in mine else other
                if is_local or not (which in ARGUMENTS or (name, which) in OF_A_METHOD):
                    wrong.append(f"{place.__name__}.{name} has no argument {which}")
            elif mine[which] != theirs[which] and (is_local or (name, which) not in DEFAULTS):
                wrong.append(f"{name}({which}=…): {mine[which]} or {theirs[which]}?")
        shared = [which for which in mine if which in theirs]
        if shared != [which for which in theirs if which in mine]:
            wrong.append(f"{name}: the order of arguments differs")
    assert not wrong


def test_the_awaited_methods_say_what_they_do() -> None:
    for one, other, _ in PAIRS:
        documented = {name for name, method in methods(one).items() if method.__doc__}
        if "Async" in other.__name__:
            for name, method in methods(other).items():
                assert method.__doc__ or name not in documented, f"{other.__name__}.{name}"
