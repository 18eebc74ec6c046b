"""Reads the content of the records that jobs are about."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from evervec.embedders.base import describe
from evervec.errors import InvalidRecord
from evervec.model.jobs import Job, Op
from evervec.records.drafts import make_draft
from evervec.records.kinds import Kind
from evervec.settings import Settings
from evervec.stores.values import Draft, Loaded, Unreadable
from evervec.tables.base import UNFIT, Attachment, Row, TableChanged
from evervec.tables.tables import FoundRow, Tables
from evervec.worker.batch import Item


class Refused(InvalidRecord):
    """A record that cannot be read; `permanent` if a retry would not help, `wait` if another
    process may be able to read it."""

    def __init__(self, message: str, *, permanent: bool, wait: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.wait = wait


def _read(
    settings: Settings, attachment: Attachment, row: Row | TableChanged | None
) -> Draft | None:
    """The record made from a row of an attached table."""
    if isinstance(row, TableChanged):
        raise Refused(str(row), permanent=False)
    try:
        return None if row is None else attachment.draft(row, settings)
    except UNFIT as error:
        raise Refused(
            f"the row of {attachment.table} is not a valid record: {describe(error)}",
            permanent=True,
        ) from error


class RecordReader:
    """Reads the current content of records: from the store, from their box, or through the kind's
    loader or attached table."""

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        tables: Tables,
        settings: Settings,
        now: Callable[[], float],
    ) -> None:
        self._kinds = kinds
        self._settings = settings
        self._tables = tables
        self._now = now

    def rows(
        self, loaded: Iterable[tuple[Job, Loaded | Unreadable | None]]
    ) -> Mapping[int, FoundRow]:
        """The rows of attached tables that the jobs refer to, by job id."""
        fetched = [job for job, x in loaded if isinstance(x, Loaded) and x.op is Op.LOAD]
        return self._tables.rows_of([job for job in fetched if not self._loader(job.kind)])

    def _loader(self, kind: str) -> Callable[[str], Any] | None:
        known = self._kinds.get(kind)
        return known.load if known else None

    def read(
        self, item: Item, loaded: Loaded, row: FoundRow | None
    ) -> tuple[str | None, str | None]:
        """Title and text to embed; a text of None means that the points are to be removed."""
        draft = None
        if loaded.op is Op.OPEN:
            draft = self._open(item.job, loaded)
        elif loaded.op is Op.LOAD:
            draft = self._fetch(item.job) if row is None else _read(self._settings, *row)
            item.gone = draft is None
        elif loaded.live:
            item.metadata, item.weight = loaded.metadata, loaded.weight
            item.updated_at = loaded.updated_at
            return loaded.title, loaded.text
        if draft is None:
            return None, None
        item.reveal = draft
        item.metadata, item.weight = json.loads(draft.metadata), draft.weight
        item.updated_at = self._now() if draft.updated_at is None else draft.updated_at
        return draft.title, draft.text

    def unread(self, job: Job, loaded: Loaded) -> Draft | None:
        """The record that becomes visible when the job is done; None: its row is gone. Raises
        `Refused` if it cannot be read."""
        if loaded.op is Op.OPEN:
            return self._open(job, loaded)
        row = None if self._loader(job.kind) else self._tables.rows_of([job]).get(job.job_id)
        return self._fetch(job) if row is None else _read(self._settings, *row)

    def _open(self, job: Job, loaded: Loaded) -> Draft:
        try:
            content = json.loads(loaded.box or "")
            content["metadata"] = json.loads(content["metadata"])
            options = {**content, "id": job.record_id, "boxed": True}
            draft = make_draft(options.pop("text"), options, None, options.pop("data"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Refused(
                f"boxed record is unreadable ({describe(error)}): add it again",
                permanent=True,
            ) from error
        draft.box_seq = loaded.box_seq
        return draft

    def _fetch(self, job: Job) -> Draft | None:
        load = self._loader(job.kind)
        if load is None:
            raise Refused(
                f"record {job.record_id!r} of kind {job.kind!r} does not exist, and this process "
                f"has no loader for it: register Kind({job.kind!r}, load=...), then retry the job",
                permanent=True,
                wait=True,
            )
        try:
            given = load(job.record_id)
        except Exception as error:
            raise Refused(f"the loader failed: {describe(error)}", permanent=False) from error
        if given is None:
            return None
        try:
            return self._kinds[job.kind].draft(given, {"id": job.record_id}, self._settings)
        except InvalidRecord as error:
            raise Refused(
                f"the loader returned an invalid record: {error}", permanent=True
            ) from error
        except Exception as error:
            raise Refused(f"the kind failed: {describe(error)}", permanent=False) from error
