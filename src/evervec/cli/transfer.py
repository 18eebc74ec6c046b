"""Commands that move records between stores: export, import."""

from __future__ import annotations

import click

from evervec.cli.app import Where, command, write_audit
from evervec.cli.output import print_json, progress, say
from evervec.cli.saved_jobs import process_all


@command("export", "evervec export notes.parquet --kind note")
@click.argument("path", type=click.Path(dir_okay=False))
@click.option("--kind", help="Only this kind.")
@click.option("--no-vectors", is_flag=True, help="Only the records.")
@click.option("--pending", is_flag=True, help="Only texts that wait to be embedded.")
def export(
    where: Where, path: str, kind: str | None, no_vectors: bool, pending: bool, as_json: bool
) -> None:
    """Write records and their vectors to a Parquet file. With --pending, write the texts that wait
    to be embedded; `evervec import --vectors` brings their vectors back."""
    with where.opened() as ev:
        if pending:
            with progress("exporting", quiet=as_json) as bar:
                done = ev.export_pending(path, kind, progress=bar.advance)
            if as_json:
                print_json(done)
            else:
                say(f"{done.records} records exported, {done.chunks} texts to embed")
            return
        total = ev.count(kind)
        with progress("exporting", total, quiet=as_json) as bar:
            done = ev.export(path, kind, not no_vectors, progress=bar.advance)
    if as_json:
        print_json(done)
    else:
        say(f"{done.records} exported, {done.with_vectors} with vectors")


@command("import", "evervec --store other.db import notes.parquet")
@click.argument("path", type=click.Path(exists=True))
@click.option("--vectors", is_flag=True, help="PATH has vectors of texts from export --pending.")
@click.option("--overwrite", is_flag=True, help="Also replace records that are newer here.")
@click.option("--no-embed", is_flag=True, help="Only save; leave embedding to a worker.")
def import_(
    where: Where, path: str, vectors: bool, overwrite: bool, no_embed: bool, as_json: bool
) -> int:
    """Save the records of an exported file. Vectors of the store's model are taken over; other
    records are embedded. Records that are newer in the store, or deleted since, are skipped.

    With --vectors, PATH is a file of `evervec export --pending` to which vectors were added, or a
    folder of such files. Records that changed since are refused and stay in the queue."""
    if vectors:
        return _import_vectors(where, path, as_json)
    with where.opened(make=True) as ev:
        with progress("importing", quiet=as_json) as bar:
            done = ev.import_(path, overwrite=overwrite, progress=bar.advance)
        write_audit(ev, "records.import", path)
        failed = 0
        if not no_embed and ev.embedder.dimensions:
            failed = process_all(ev, quiet=as_json).failed
    if as_json:
        print_json(done)
    else:
        say(
            f"{done.saved} saved, {done.unchanged} unchanged, {done.skipped} skipped; "
            f"{done.with_vectors} came with vectors"
        )
    return 1 if failed else 0


def _import_vectors(where: Where, path: str, as_json: bool) -> int:
    with where.opened() as ev:
        with progress("importing", quiet=as_json) as bar:
            done = ev.import_vectors(path, progress=bar.advance)
        write_audit(ev, "vectors.import", path)
    if as_json:
        print_json(done)
    else:
        say(f"{done.written} embedded, {done.refused} refused, {done.invalid} invalid")
    return 1 if done.invalid else 0
