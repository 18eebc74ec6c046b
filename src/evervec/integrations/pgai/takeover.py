"""Imports a pgai vectorizer: attaches its table and writes its vectors into evervec's index.

Each row is processed like any record: a job is enqueued, claimed, and finished with the chunks
that pgai stored instead of new ones. So concurrent changes of the row are handled as usual, and
rows whose chunks do not fit are left to the workers.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evervec.chunking import embedded_text, hash_text
from evervec.embedders.base import spec_of
from evervec.errors import InvalidArgument, ProviderUnavailable, RateLimited
from evervec.facade import Evervec
from evervec.integrations.pgai.definition import Stored, Vectorizer, vectorizers
from evervec.model.jobs import Job, Op
from evervec.model.records import Chunk
from evervec.stores.values import Draft, Loaded
from evervec.tables.base import UNFIT, Attachment, Row, attachment
from evervec.worker.batch import Batch, Item

_AT_ONCE = 200
_SAMPLE = 5
_SAME = 0.98
"""minimum cosine of two vectors of the same text by the same model: servers round"""


@dataclass
class Report:
    """What was imported, or would be."""

    vectorizer: str
    table: str
    kind: str
    rows: int = 0
    taken: int = 0
    """rows whose vectors were imported"""
    left: int = 0
    """rows that workers embed"""
    sample: float | None = None
    """the smallest cosine of stored and new vectors; None: nothing was compared"""
    dropped: bool = False
    notes: list[str] = field(default_factory=list)
    """what cannot be imported, and what will differ"""
    sql: tuple[str, ...] = ()


def take_over(
    ev: Evervec,
    name: str | None = None,
    *,
    kind: str | None = None,
    metadata: Iterable[str] = (),
    dry_run: bool = False,
    drop: bool = False,
    progress: Callable[[int], object] | None = None,
) -> Report:
    """Attach the table of a pgai vectorizer, and import the vectors that fit.

    pgai is not changed, unless `drop` is set: then its trigger and queue are dropped at the end.
    Its vectors are always kept. If interrupted, the next call continues. `dry_run`: only report what
    would happen. `name` may be omitted if there is only one vectorizer.
    """
    source = ev.attachments.source
    connect = getattr(getattr(ev.store, "db", None), "dedicated", None)
    if source is None or connect is None:
        raise InvalidArgument(
            f"{ev.store.url} is not PostgreSQL: give the database with pgai's tables"
        )
    with closing(connect()) as conn:
        conn.execute("set datestyle = 'ISO, YMD'; set timezone = 'UTC'; set bytea_output = 'hex'")
        chosen = _choose(vectorizers(conn), name)
        if chosen.column is None:
            raise InvalidArgument(
                f"the vectorizer {chosen.name} reads files, not a column: add them with "
                "`evervec sync`, or register a Kind(load=...)"
            )
        titles = chosen.template_columns
        planned = source.plan(
            attachment(
                chosen.table, kind or _bare(chosen.table), list(chosen.key), [chosen.column],
                metadata, title=titles[0] if len(titles) == 1 else None, owner=ev.tenant,
            )
        )  # fmt: skip
        report = Report(chosen.name, chosen.table, planned.kind, sql=planned.sql)
        usable = _check_usable(ev, chosen, conn, report)
        if not dry_run:
            ev.attachments.check_free(planned.kind)
            source.attach(planned, backfill=not usable)
        behind: Sequence[Any] = ()
        while rows := source.page(planned, behind, _AT_ONCE):
            behind = rows[-1].key
            fitting = _fitting(ev, chosen, conn, planned, rows) if usable else {}
            report.rows += len(rows)
            taken = len(fitting)
            if usable and not dry_run:
                taken = _write(ev, planned, chosen, rows, fitting)
            report.taken += taken
            report.left += len(rows) - taken
            if progress is not None:
                progress(report.rows)
        if drop and not dry_run:
            chosen.drop(conn)
            report.dropped = True
    return report


def _choose(found: Sequence[Vectorizer], name: str | None) -> Vectorizer:
    mine = [v for v in found if name in (None, v.name, str(v.id), v.table, _bare(v.table))]
    if len(mine) == 1:
        return mine[0]
    names = ", ".join(v.name for v in found) or "none"
    what = f"{name!r} is not one of them" if name else "name one"
    raise InvalidArgument(f"the vectorizers of this database are {names}: {what}")


def _bare(table: str) -> str:
    return table.rpartition('."')[2].rstrip('"').replace('""', '"')


def _check_usable(ev: Evervec, chosen: Vectorizer, conn: Any, report: Report) -> bool:
    """Note in the report what is true of its vectors; returns whether this embedder can use them."""
    notes = report.notes
    if chosen.template != "$chunk":
        added = ", ".join(chosen.template_columns) or "words"
        notes.append(
            f"its template {chosen.template!r} adds {added} to every chunk; imported chunks were "
            "embedded this way, changed rows are embedded with the row's title instead"
        )
    notes.append("when a row first changes, it is chunked by evervec and embedded completely")
    if chosen.target is None:
        notes.append("its vectors are not in a separate table: all rows are embedded again")
        return False
    spec = spec_of(ev.embedder)
    theirs = f"{chosen.provider} {chosen.model!r} ({chosen.dimensions} dimensions)"
    if spec is None:
        notes.append(f"no embedder is given, so the vectors of {theirs} cannot be imported")
        return False
    if (_model(spec.model), spec.dimensions) != (_model(chosen.model), chosen.dimensions):
        notes.append(
            f"its vectors are of {theirs}, this store's of {spec.provider} {spec.model!r} "
            f"({spec.dimensions}): all rows are embedded again"
        )
        return False
    return _compare_model(ev, chosen.sample(conn, _SAMPLE), report)


def _model(name: str) -> str:
    return name.removeprefix("openai/").removesuffix(":latest")


def _compare_model(ev: Evervec, sample: Sequence[Stored], report: Report) -> bool:
    """Embed a few chunks and compare, because name and size do not prove which model a server ran;
    returns whether it is the same. The report says how alike they are."""
    if not sample:
        return True
    try:
        fresh = ev.provider.embed([stored.text for stored in sample])
    except (ProviderUnavailable, RateLimited) as error:
        report.notes.append(f"no vector was compared with a new one: {error}")
        return True
    pairs = zip(sample, fresh.vectors, strict=True)
    report.sample = min(float(_unit(s.vector) @ _unit(vector)) for s, vector in pairs)
    if report.sample < _SAME:
        report.notes.append(
            f"its vectors differ from new ones of the same texts (cosine {report.sample:.3f}): "
            "another model made them, so all rows are embedded again"
        )
        return False
    return True


def _unit(vector: Any) -> Any:
    made = np.asarray(vector, np.float32)
    return made / (np.linalg.norm(made) or 1.0)


Pieces = list[tuple[int, int, Stored]]
"""start and end of each chunk in a text"""


def _fitting(
    ev: Evervec, chosen: Vectorizer, conn: Any, planned: Attachment, rows: Sequence[Row]
) -> dict[str, list[Stored]]:
    """By id, the stored chunks of rows that are not in pgai's queue and whose chunks fit."""
    stored, queued = chosen.chunks(conn, rows), chosen.queued(conn, rows)
    fitting = {}
    for row in rows:
        draft = _draft(ev, planned, row)
        chunks = stored.get(row.id, [])
        if draft and row.id not in queued and _pieces(chosen, draft.text, chunks):
            fitting[row.id] = chunks
    return fitting


def _pieces(chosen: Vectorizer, text: str, chunks: Sequence[Stored]) -> Pieces:
    """The positions of all chunks in a text; empty if one is not found."""
    pieces: Pieces = []
    start = 0
    for stored in chunks:
        found = chosen.pattern.fullmatch(stored.text)
        piece = found["chunk"] if found else stored.text
        at = text.find(piece, start)
        at = text.find(piece) if at < 0 else at
        if at < 0 or not piece:
            return []
        pieces.append((at, at + len(piece), stored))
        start = at
    return pieces


def _write(
    ev: Evervec,
    planned: Attachment,
    chosen: Vectorizer,
    rows: Sequence[Row],
    fitting: Mapping[str, list[Stored]],
) -> int:
    """Finish the jobs of fitting rows with the stored chunks, and release the others."""
    jobs, there = _claimed(ev, planned, rows)
    loaded = ev.store.leases.load(jobs, 1 << 40)
    now = ev.attachments.rows_of(jobs)  # read after the claim, so not older than the jobs' changes
    assert ev.models.main is not None
    batch, rest = Batch([], ev.models.main), []
    for job, found in zip(jobs, loaded, strict=True):
        row = now[job.job_id][1] if job.job_id in now else None
        draft = _draft(ev, planned, row) if isinstance(row, Row) else None
        chunks = fitting.get(job.record_id, [])
        pieces = _pieces(chosen, draft.text, chunks) if draft else []
        if draft and pieces and isinstance(found, Loaded) and found.op is Op.LOAD:
            _put(batch, Item(job, found.seq, reveal=draft), draft, pieces, ev.store.now())
        else:
            rest.append(job)
    ev.queue.release_many(rest)
    return there + (ev.pipeline.write(batch).succeeded if batch.items else 0)


def _draft(ev: Evervec, planned: Attachment, row: Row) -> Draft | None:
    try:
        return planned.draft(row, ev.settings)
    except UNFIT:
        return None  # not a valid record; a worker or `verify` reports it


def _claimed(ev: Evervec, planned: Attachment, rows: Sequence[Row]) -> tuple[list[Job], int]:
    """Claimed jobs for the rows that are not records yet, and the number of those that are."""
    by_tenant: dict[str, dict[str, Draft]] = defaultdict(dict)
    for row in rows:
        if draft := _draft(ev, planned, row):
            by_tenant[planned.tenant_of(row)][row.id] = draft
    there = wanted = 0
    for tenant, drafts in by_tenant.items():
        known = ev.store.records.digests(tenant, planned.kind, list(drafts))
        missing = [id for id, d in drafts.items() if id not in known or known[id].hash != d.hash]
        there += len(drafts) - len(missing)
        wanted += len(missing)
        ev.store.changes.enqueue(tenant, planned.kind, missing, loaded=True)
    served = set(ev.pipeline.served.refresh())
    mine = [c.version for c in ev.store.versions.collections() if c.kind == planned.kind]
    versions = [version for version in mine if version in served]
    return (ev.queue.claim(wanted, versions=versions) if wanted and versions else []), there


def _put(batch: Batch, item: Item, draft: Draft, pieces: Pieces, now: float) -> None:
    """Add a record with its stored chunks, none of which needs embedding."""
    item.metadata, item.weight = json.loads(draft.metadata), draft.weight
    item.updated_at = now
    chunks = []
    for place, (start, end, stored) in enumerate(pieces):
        # what the template added is context, like headings, and not part of the hash
        hash = hash_text(embedded_text(draft.title, draft.text, start, end))
        chunks.append(Chunk(hash, start, end))
        item.fresh.setdefault(hash, (place, stored.text))
        if hash not in batch.rows:
            batch.rows[hash] = -1 - len(batch.rows)  # no embedding is needed for this vector
            batch.vectors[batch.rows[hash]] = _unit(stored.vector)
    item.chunks = chunks
    batch.items.append(item)
