"""Reads the content of the records that jobs are about."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evervec.embedders.base import describe
from evervec.errors import InvalidRecord, LeaseLost
from evervec.model.basics import quick_maker
from evervec.model.jobs import Job, Op
from evervec.model.records import Content
from evervec.records.drafts import make_draft
from evervec.records.kinds import Kind
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.values import Draft, Loaded, Unreadable
from evervec.tables.base import UNFIT, Attachment, Row, TableChanged
from evervec.tables.tables import FoundRow, Tables
from evervec.worker.batch import Item

_make_content = quick_maker(Content)


class Refused(InvalidRecord):
    """A record that cannot be read; `permanent` if a retry would not help, `wait` if another
    process may be able to read it."""

    def __init__(self, message: str, *, permanent: bool, wait: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent
        self.wait = wait


def unreadable(loaded: Unreadable) -> str:
    return f"record is unreadable ({loaded.error}): add it again"


def _draft_of_row(
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


@dataclass(eq=False, repr=False)
class RecordReader:
    """Reads the current content of records: from the store, from their box, or through the kind's
    loader or attached table."""

    _store: Store
    _kinds: Mapping[str, Kind]
    _tables: Tables
    _settings: Settings

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
        content = self._read(item.job, loaded, row)
        if content is None:
            item.gone = loaded.op is Op.LOAD
            return None, None
        item.metadata, item.weight, item.reveal = content.metadata, content.weight, content.draft
        changed_at = loaded.updated_at if item.reveal is None else item.reveal.updated_at
        item.updated_at = self._store.now() if changed_at is None else changed_at
        return content.title, content.text

    def content(self, job: Job) -> Content | None:
        """The current content of a claimed job; None: the record's points are to be removed."""
        loaded = self._store.leases.load([job], 0)[0]
        if loaded is None:
            raise LeaseLost(f"job {job.job_id} no longer exists: it was cancelled")
        if isinstance(loaded, Unreadable):
            raise InvalidRecord(unreadable(loaded))
        return self._read(job, loaded, self.rows([(job, loaded)]).get(job.job_id))

    def _read(self, job: Job, loaded: Loaded, row: FoundRow | None) -> Content | None:
        """The content of the record, of its box, or of its row in an attached table or from the
        kind's loader."""
        if loaded.op is Op.OPEN:
            draft: Draft | None = self._open(job, loaded)
        elif loaded.op is Op.LOAD:
            draft = self._fetch(job) if row is None else _draft_of_row(self._settings, *row)
        elif loaded.live:
            return _make_content(loaded.title, loaded.text, loaded.metadata, loaded.weight)
        else:
            return None
        if draft is None:
            return None
        metadata = json.loads(draft.metadata)
        return Content(draft.title, draft.text, metadata, draft.weight, draft)

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
