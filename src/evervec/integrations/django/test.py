"""For tests of a project: searches that find the rows of the test, embedded by a simple hash.

The rows of a `TestCase` are in a transaction that is rolled back, and Django's test database is often
in memory: no worker sees either. So in `searchable` each search first copies the rows to a store in
memory and embeds them. `real_store` is for a `TransactionTestCase` on a file or PostgreSQL.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.apps import apps
from django.db import router

import evervec
from evervec.integrations.django.conf import Configuration
from evervec.integrations.django.copier import copy_rows
from evervec.integrations.django.declaration import searched_models
from evervec.integrations.django.stores import STORES, open_store


@contextmanager
def searchable(embedder: Any = "hashing") -> Iterator[None]:
    """In this block, searches of models find what the rows are at that moment, also uncommitted
    ones. Nothing is left of it afterwards."""
    tenant = Configuration.read().tenant
    stores: dict[str, evervec.Evervec] = {}
    lock = threading.Lock()  # a live server searches in threads
    with ExitStack() as stack:

        def current(alias: str) -> evervec.Evervec:
            with lock:
                if alias not in stores:
                    store = evervec.open("memory:", embedder=embedder, tenant=tenant)
                    stores[alias] = stack.enter_context(store)
                ev = stores[alias]
                for model, declaration in searched_models(apps).items():
                    if router.allow_migrate_model(alias, model):
                        copy_rows(ev, model, declaration, alias)
                ev.process_all()
                return ev

        with STORES.replaced(current):
            yield


class SearchTestMixin:
    """For a `TestCase` or `TransactionTestCase`: all of its tests are `searchable`."""

    def setUp(self) -> None:
        super().setUp()  # type: ignore[misc]
        block = searchable()
        block.__enter__()
        self.addCleanup(block.__exit__, None, None, None)  # type: ignore[attr-defined]


@contextmanager
def real_store(using: str = "default", embedder: Any = "hashing") -> Iterator[evervec.Evervec]:
    """In this block, searches use the real store of the test database, which this opens: call
    `process_all()` on it to embed what was committed. It is closed at the end, so that the test
    database can be dropped."""
    with open_store(using, embedder=embedder) as ev, STORES.replaced(lambda _: ev):
        yield ev
