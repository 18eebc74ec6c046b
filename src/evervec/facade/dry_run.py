"""What attaching a table would do, found without changing anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from evervec.embedding.provider import Provider
from evervec.embedding.registry import EmbedderRegistry
from evervec.opening import open_embedder, open_model, open_source
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.table_access import reading_tables
from evervec.tables.base import Attachment
from evervec.tables.source import Source
from evervec.tables.tables import Tables
from evervec.versions.estimate import estimate_rows


def plan_attachment(
    given: Any,
    wanted: Attachment,
    settings: Settings,
    embedder: str = "auto",
    *,
    replace: bool = False,
) -> Attachment:
    """The attachment with the statements that attaching runs, and an estimate of its cost; refused
    as attaching would be. The database is not changed, and need not have a store."""
    with _planned(given, wanted, settings, replace=replace) as (planned, source, store):
        made, _ = open_embedder(embedder, store, settings)
        provider = Provider(made, store, settings)
        with closing(EmbedderRegistry(provider, store, settings, open_model)) as models:
            return with_estimate(planned, source, models, settings)


def check_attachment(
    given: Any, wanted: Attachment, settings: Settings, *, replace: bool = False
) -> None:
    """Refuse what attaching would refuse, before a store is created for it."""
    with _planned(given, wanted, settings, replace=replace):
        pass


@contextmanager
def _planned(
    given: Any, wanted: Attachment, settings: Settings, *, replace: bool
) -> Iterator[tuple[Attachment, Source, Store]]:
    with reading_tables(given, settings) as (source, store):
        planned = source.plan(wanted)
        if not replace:
            Tables(open_source(store), store, settings).check_free(wanted.kind)
        yield planned, source, store


def with_estimate(
    planned: Attachment, source: Source, models: EmbedderRegistry, settings: Settings
) -> Attachment:
    """The plan with what its rows cost in the model of new records."""
    return dataclasses.replace(
        planned, estimate=estimate_rows(source, planned, models.main, settings)
    )
