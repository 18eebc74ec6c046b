"""Taking over: a pgai vectorizer's table attached, and its vectors put where evervec's would be.

Each row goes the way of every record: a job is enqueued and claimed, and finished with the chunks
that pgai stored in place of fresh ones. So whatever else happens to the row meanwhile is noticed
as always, and a row that does not fit is simply left to the workers.
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
from evervec.embedding.registry import Model
from evervec.errors import InvalidArgument, ProviderUnavailable, RateLimited
from evervec.facade import Evervec
from evervec.integrations.pgai.definition import Stored, Vectorizer, vectorizers
from evervec.model.jobs import Job, Op
from evervec.model.records import Chunk
from evervec.stores.values import Draft, Loaded
from evervec.tables.base import Attachment, Row, attachment
from evervec.tables.tables import UNFIT
from evervec.worker.batch import Batch, Item

_AT_ONCE = 200
_SAMPLE = 5
_SAME = 0.98
"""the cosine from which on two vectors are of the same text by the same model: servers round"""


@dataclass
class Report:
    """What was taken over, or would be."""

    vectorizer: str
    table: str
    kind: str
    rows: int = 0
    taken: int = 0
    """rows whose vectors were taken over"""
    left: int = 0
    """rows that workers embed"""
    sample: float | None = None
    """the least cosine of stored and fresh vectors; None: nothing could be compared"""
    dropped: bool = False
    notes: list[str] = field(default_factory=list)
    """what cannot be taken over, and what will differ"""
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
    """Attach the table of a pgai vectorizer, and take over the vectors that fit.

    Nothing of pgai's is changed, unless `drop` asks for its trigger and queue to go once all is
    done; its vectors stay in any case. Broken off, it goes on where it was when called again.
    `dry_run`: only say what would happen. `name` may be left out where there is only one.
    """
    source = ev.tables.source
    connect = getattr(getattr(ev.store, "db", None), "dedicated", None)
    if source is None or connect is None:
        raise InvalidArgument(f"{ev.store.url} is not PostgreSQL, where pgai's tables are")
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
        usable = _is_usable(ev, chosen, conn, report)
        if not dry_run:
            ev.tables.check_free(ev.store, planned.kind)
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
    what = f"{name!r} is not one of them" if name else "say which"
    raise InvalidArgument(f"the vectorizers of this database are {names}: {what}")


def _bare(table: str) -> str:
    return table.rpartition('."')[2].rstrip('"').replace('""', '"')


def _is_usable(ev: Evervec, chosen: Vectorizer, conn: Any, report: Report) -> bool:
    """Whether its vectors are such as this embedder makes; the report says why not."""
    notes = report.notes
    if chosen.template != "$chunk":
        added = ", ".join(chosen.template_columns) or "words"
        notes.append(
            f"its template {chosen.template!r} adds {added} to every chunk; what is taken over was "
            "embedded so, and what changes later is embedded below the row's title instead"
        )
    notes.append("a row is cut in evervec's own way, and embedded whole, when it first changes")
    if chosen.target is None:
        notes.append("its vectors are not in a table of their own: all rows are embedded anew")
        return False
    spec = spec_of(ev.embedder)
    theirs = f"{chosen.provider} {chosen.model!r} ({chosen.dimensions} dimensions)"
    if spec is None:
        notes.append(f"no embedder is given, so the vectors of {theirs} cannot be taken over")
        return False
    if (_model(spec.model), spec.dimensions) != (_model(chosen.model), chosen.dimensions):
        notes.append(
            f"its vectors are of {theirs}, and this store's of {spec.provider} {spec.model!r} "
            f"({spec.dimensions}): all rows are embedded anew"
        )
        return False
    return _is_same_model(ev, chosen.sample(conn, _SAMPLE), report)


def _model(name: str) -> str:
    return name.removeprefix("openai/").removesuffix(":latest")


def _is_same_model(ev: Evervec, sample: Sequence[Stored], report: Report) -> bool:
    """Embed a few chunks afresh: a name and a size say little of what a server really ran."""
    if not sample:
        return True
    try:
        fresh = ev.provider.embed([stored.text for stored in sample])
    except (ProviderUnavailable, RateLimited) as error:
        report.notes.append(f"no vector was compared with a fresh one: {error}")
        return True
    pairs = zip(sample, fresh.vectors, strict=True)
    report.sample = min(float(_unit(s.vector) @ _unit(vector)) for s, vector in pairs)
    if report.sample < _SAME:
        report.notes.append(
            f"its vectors differ from fresh ones of the same texts (cosine {report.sample:.3f}): "
            "another model made them, so all rows are embedded anew"
        )
        return False
    return True


def _unit(vector: Any) -> Any:
    made = np.asarray(vector, np.float32)
    return made / (np.linalg.norm(made) or 1.0)


Pieces = list[tuple[int, int, Stored]]
"""where in a text each chunk stands"""


def _fitting(
    ev: Evervec, chosen: Vectorizer, conn: Any, planned: Attachment, rows: Sequence[Row]
) -> dict[str, list[Stored]]:
    """By id, the stored chunks of rows that pgai is up to date with."""
    stored, queued = chosen.chunks(conn, rows), chosen.queued(conn, rows)
    fitting = {}
    for row in rows:
        draft = _draft(ev, planned, row)
        chunks = stored.get(row.id, [])
        if draft and row.id not in queued and _pieces(chosen, draft.text, chunks):
            fitting[row.id] = chunks
    return fitting


def _pieces(chosen: Vectorizer, text: str, chunks: Sequence[Stored]) -> Pieces:
    """The places of all chunks in a text; none where one does not stand in it."""
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


def _main(ev: Evervec) -> Model:
    assert ev.models.main is not None
    return ev.models.main


def _write(
    ev: Evervec,
    planned: Attachment,
    chosen: Vectorizer,
    rows: Sequence[Row],
    fitting: Mapping[str, list[Stored]],
) -> int:
    """Finish the jobs of rows that fit with what is stored, and leave the others to workers."""
    jobs, there = _claimed(ev, planned, rows)
    loaded = ev.store.load(jobs, 1 << 40)
    now = ev.tables.rows_of(jobs)  # read behind the jobs, so not older than what they want
    batch, rest = Batch([], _main(ev)), []
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
        return None  # it has no record, and a worker or `verify` says why


def _claimed(ev: Evervec, planned: Attachment, rows: Sequence[Row]) -> tuple[list[Job], int]:
    """Jobs for the rows that are not records yet, and how many are."""
    by_tenant: dict[str, dict[str, Draft]] = defaultdict(dict)
    for row in rows:
        if draft := _draft(ev, planned, row):
            by_tenant[planned.tenant_of(row)][row.id] = draft
    there = wanted = 0
    for tenant, drafts in by_tenant.items():
        known = ev.store.digests(tenant, planned.kind, list(drafts))
        missing = [id for id, d in drafts.items() if id not in known or known[id].hash != d.hash]
        there += len(drafts) - len(missing)
        wanted += len(missing)
        ev.store.enqueue(tenant, planned.kind, missing, loaded=True)
    served = set(ev.pipeline.serves())
    mine = [c.version for c in ev.store.collections() if c.kind == planned.kind]
    versions = [version for version in mine if version in served]
    return (ev.queue.claim(wanted, versions=versions) if wanted and versions else []), there


def _put(batch: Batch, item: Item, draft: Draft, pieces: Pieces, now: float) -> None:
    """A record with the chunks that are stored of it, none of which is to be embedded."""
    item.metadata, item.weight = json.loads(draft.metadata), draft.weight
    item.updated_at = now
    chunks = []
    for place, (start, end, stored) in enumerate(pieces):
        # what its template added is context, as headings are, and no part of the hash
        hash = hash_text(embedded_text(draft.title, draft.text, start, end))
        chunks.append(Chunk(hash, start, end))
        item.fresh.setdefault(hash, (place, stored.text))
        if hash not in batch.rows:
            batch.rows[hash] = -1 - len(batch.rows)  # a vector that costs nothing
            batch.vectors[batch.rows[hash]] = _unit(stored.vector)
    item.chunks = chunks
    batch.items.append(item)
