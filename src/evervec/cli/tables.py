"""Commands for existing data: attach, detach, import-pgai, sync."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import click

from evervec.cli.app import Where, command
from evervec.cli.output import print_json, say, show


@command("attach", "evervec --store app.db attach articles --text title --text body")
@click.argument("table")
@click.option("--kind", help="Kind of its records.  [the table's name]")
@click.option("--id", "key", multiple=True, help="Column of its key; may be repeated.  [id]")
@click.option(
    "--text", multiple=True, required=True,
    help="Column (may be repeated), or a template such as '{title}: {body}'.",
)  # fmt: skip
@click.option("--title", help="Column with the title.")
@click.option("--metadata", multiple=True, help="Column to filter by; may be repeated.")
@click.option("--weight", help="Column with the weight, from 0 to 1.")
@click.option("--updated-at", help="Column with the time of the last change.")
@click.option("--tenant-column", help="Column with the tenant.")
@click.option(
    "--replace", is_flag=True, help="Delete records of the kind that are not rows of the table."
)
@click.option("--dry-run", is_flag=True, help="Only print the SQL.")
def attach(where: Where, table: str, kind: str | None, key: tuple[str, ...],
           text: tuple[str, ...], title: str | None, metadata: tuple[str, ...],
           weight: str | None, updated_at: str | None, tenant_column: str | None, replace: bool, dry_run: bool,
           as_json: bool) -> None:  # fmt: skip
    """Index a table of the store's database and keep it in sync."""
    given: dict[str, Any] = {
        "kind": kind or table.rpartition(".")[2], "id": list(key) or "id",
        "text": text[0] if len(text) == 1 else list(text), "title": title,
        "metadata": metadata, "weight": weight, "updated_at": updated_at,
        "tenant": tenant_column,
    }  # fmt: skip
    if dry_run and where.app is None:  # the store may not exist, and is not created
        from evervec.opening import plan_attachment
        from evervec.settings import Settings
        from evervec.tables.base import attachment

        owner = where.tenant or "default"
        wanted = attachment(table, **given, owner=owner)
        made, rows = plan_attachment(where.store, wanted, Settings.load({}))
    else:
        with where.opened(make=True) as ev:
            made = ev.attach(table, **given, replace=replace, dry_run=dry_run)
            rows = 0 if ev.tables.source is None else ev.tables.source.count(made)
    facts = {"table": made.table, "kind": made.kind, "rows": rows, "sql": list(made.sql)}
    if dry_run:
        show(as_json, facts, *(f"{statement};" for statement in made.sql))
    else:
        attached = f"{table} is attached as {made.kind}; it has about {rows} rows"
        show(as_json, facts, attached, "`evervec worker` embeds them and keeps them in sync")


@command("detach", "evervec --store app.db detach articles")
@click.argument("table")
@click.option("--keep-records", is_flag=True, help="Keep the records that were indexed.")
def detach(where: Where, table: str, keep_records: bool, as_json: bool) -> None:
    """Stop indexing a table; drops its triggers and deletes its records."""
    with where.opened() as ev:
        gone = ev.detach(table, keep_records=keep_records)
    facts = {"table": table, "records": gone}
    show(as_json, facts, f"{table} is detached; {gone} records are deleted")


@command("import-pgai", "evervec --store postgresql://localhost/app import-pgai --dry-run")
@click.argument("vectorizer", required=False)
@click.option("--kind", help="Kind of its records.  [the table's name]")
@click.option("--metadata", multiple=True, help="Column to filter by; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Only show what would be imported.")
@click.option("--drop-vectorizer", is_flag=True, help="Drop pgai's trigger and queue afterwards.")
def import_pgai(where: Where, vectorizer: str | None, kind: str | None,
                metadata: tuple[str, ...], dry_run: bool, drop_vectorizer: bool,
                as_json: bool) -> None:  # fmt: skip
    """Import a table from pgai with its vectors; VECTORIZER is a name or number."""
    from evervec.integrations.pgai import take_over

    with where.opened(make=True) as ev:
        report = take_over(
            ev, vectorizer, kind=kind, metadata=metadata, dry_run=dry_run, drop=drop_vectorizer
        )
    if as_json:
        print_json(asdict(report))
        return
    would = "would be " if dry_run else ""
    say(f"{report.table} {would or 'is '}attached as {report.kind}")
    say(f"{report.taken} of {report.rows} rows {would}imported with their vectors")
    if report.left:
        say(f"{report.left} rows remain for `evervec worker` to embed")
    if report.sample is not None:
        say(f"stored and new vectors of the same texts: cosine at least {report.sample:.3f}")
    for note in report.notes:
        say(f"note: {note}")
    if report.dropped:
        say("pgai's trigger and queue are dropped; its vectors are kept")
    elif not dry_run:
        say("pgai's trigger is still active: stop pgai's worker, then run with --drop-vectorizer")


@command("sync", "evervec sync docs/ --watch")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option("--kind", default="doc", show_default=True, help="Kind of its records.")
@click.option("--watch", is_flag=True, help="Keep running and watch for changes.")
@click.option("--every", default=1.0, show_default=True, help="Seconds between two scans.")
def sync(where: Where, folder: str, kind: str, watch: bool, every: float, as_json: bool) -> int:
    """Sync a folder: changed, renamed and deleted files, once or continuously."""
    from evervec.cli.files import snapshot
    from evervec.cli.records import COUNTED, add_files, embed, summary

    with where.opened(make=True) as ev:
        before: Any = None
        while True:
            now = snapshot(folder)
            if now != before:
                counts = dict.fromkeys(COUNTED, 0)
                add_files(ev, kind, (folder,), counts, sync=True, quiet=as_json or watch)
                failed = embed(ev, quiet=as_json or watch)
                before = now
                show(as_json, {**counts, "failed": failed}, summary(counts) or "no files")
            if not watch:
                return 1 if failed else 0
            try:
                time.sleep(every)
            except KeyboardInterrupt:
                return 0
