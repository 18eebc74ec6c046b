"""Stores with something of everything in them, for the dashboard to show."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import evervec
from evervec import Evervec
from evervec.errors import InvalidInput
from evervec.server.keys import Keys
from support.world import ScriptedEmbedder

FAILING = "refuse this"
"""a text with these words fails, with the whole text in its error"""


class NextEmbedder(ScriptedEmbedder):
    """A model to change to."""

    model = "next"


def refuse(texts: Sequence[str]) -> None:
    if refused := [place for place, text in enumerate(texts) if FAILING in text]:
        raise InvalidInput(refused, f"the model has no word for it: {texts[refused[0]]}")


@contextmanager
def furnished(folder: Path, **settings: Any) -> Iterator[Evervec]:
    """An open store whose embedder refuses some texts."""
    embedder = ScriptedEmbedder()
    embedder.before = refuse
    options = {"embedder": embedder, "backoff_seconds": 3600, **settings}
    with evervec.open(folder / "store.db", **options) as ev:
        yield ev


def furnish(ev: Evervec, path: Path, word: str, records: int = 3) -> dict[str, object]:
    """Fill a tenant with records, jobs and failures that have a word in each of their parts.
    Returns what the addresses of its pages need."""
    kind, id = f"kind {word}", f"id {word}"
    found = {f"key {word}": f"value {word}", "size": 3}
    done = ev.add(kind, f"text {word}", id=id, title=f"title {word}", metadata=found)
    for number in range(records):
        ev.add(kind, f"text {number} {word}", id=f"{number} {word}", metadata=found)
    failed = ev.add(kind, f"{FAILING} {word}", id=f"failed {word}", title=f"title {word}")
    attach_table(ev, path, f"table {word}", f"row {word}")
    ev.process_all()
    ev.add(kind, f"waits {word}", id=f"waiting {word}")
    job = next(job for job in ev.queue.jobs(status="failed") if job.seq == failed.seq)
    (version, *_) = ev.versions()
    values: dict[str, object] = {
        "kind": kind, "id": id, "q": word, "tenant": ev.tenant, "jobs.id": job.job_id,
        "job_id": job.job_id, "job": job.job_id, "version": version.name, "name": version.name,
        "versions.name": version.name, "error": word, "record": id, "seq": done.seq,
        "keys.id": Keys(ev.store).create(ev.tenant, f"agent {word}", "reader").info.id,
        "step": "cancel", "tables.kind": f"row {word}", "worker": f"worker {word}",
    }  # fmt: skip
    if hasattr(ev, "failures"):
        values["fingerprint"] = ev.failures()[0].fingerprint
    return values


def attach_table(ev: Evervec, path: Path, name: str, kind: str) -> None:
    """Attach a table of the store's own database."""
    quoted = '"' + name.replace('"', '""') + '"'
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute(f"create table {quoted} (id integer primary key, body text)")
        conn.execute(f"insert into {quoted} (body) values ('a row')")
    ev.attach(name, text="body", kind=kind)


def rows_of(path: Path, tenant: str) -> dict[str, list[tuple[Any, ...]]]:
    """All that a store keeps of a tenant, by table."""
    with closing(sqlite3.connect(path)) as conn:
        names = [
            name for (name,) in conn.execute("select name from sqlite_master where type = 'table'")
        ]
        found = {}
        for name in names:
            columns = [row[1] for row in conn.execute(f'pragma table_info("{name}")')]
            if "tenant" in columns:
                query = f'select * from "{name}" where tenant = ?'
                found[name] = sorted(conn.execute(query, (tenant,)), key=repr)
        return found
