"""Commands for what the application has already: attach, detach, import-pgai, sync."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import click

from evervec.cli.app import Where, as_json, command
from evervec.cli.output import print_json, say


@command("attach", "evervec --store app.db attach articles --text title --text body")
@click.argument("table")
@click.option("--kind", help="The kind of its records.  [the table's name]")
@click.option("--id", "key", multiple=True, help="A column of its key; may be repeated.  [id]")
@click.option(
    "--text", multiple=True, required=True,
    help="A column, repeated for several, or a template such as '{title}: {body}'.",
)  # fmt: skip
@click.option("--title", help="The column that titles a row.")
@click.option("--metadata", multiple=True, help="A column to filter by; may be repeated.")
@click.option("--weight", help="The column that weighs a row from 0 to 1.")
@click.option("--tenant-column", help="The column that says whose a row is.")
@click.option(
    "--replace", is_flag=True, help="Delete records of the kind that are not rows of the table."
)
@click.option("--dry-run", is_flag=True, help="Only print the SQL.")
@as_json
def attach(where: Where, table: str, kind: str | None, key: tuple[str, ...],
           text: tuple[str, ...], title: str | None, metadata: tuple[str, ...],
           weight: str | None, tenant_column: str | None, replace: bool, dry_run: bool,
           as_json: bool) -> None:  # fmt: skip
    """Keep a table of the store's own database in step, whatever program writes it."""
    given: dict[str, Any] = {
        "kind": kind or table.rpartition(".")[2], "id": list(key) or "id",
        "text": text[0] if len(text) == 1 else list(text), "title": title,
        "metadata": metadata, "weight": weight, "tenant": tenant_column,
    }  # fmt: skip
    if dry_run and where.app is None:  # there may be no store, and none is made for it
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
    if as_json:
        print_json({"table": made.table, "kind": made.kind, "rows": rows, "sql": list(made.sql)})
    elif dry_run:
        for statement in made.sql:
            say(f"{statement};")
    else:
        say(f"{table} is attached as {made.kind}; it has about {rows} rows")
        say("`evervec worker` embeds them, and follows every change")


@command("detach", "evervec --store app.db detach articles")
@click.argument("table")
@click.option("--keep-records", is_flag=True, help="Leave what was indexed as it is.")
@as_json
def detach(where: Where, table: str, keep_records: bool, as_json: bool) -> None:
    """Stop following a table; its triggers and records go."""
    with where.opened() as ev:
        gone = ev.detach(table, keep_records=keep_records)
    if as_json:
        print_json({"table": table, "records": gone})
    else:
        say(f"{table} is detached; {gone} records go with it")


@command("import-pgai", "evervec --store postgresql://localhost/app import-pgai --dry-run")
@click.argument("vectorizer", required=False)
@click.option("--kind", help="The kind of its records.  [the table's name]")
@click.option("--metadata", multiple=True, help="A column to filter by; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Only say what would be taken over.")
@click.option("--drop-vectorizer", is_flag=True, help="Have pgai drop its trigger and queue then.")
@as_json
def import_pgai(where: Where, vectorizer: str | None, kind: str | None,
                metadata: tuple[str, ...], dry_run: bool, drop_vectorizer: bool,
                as_json: bool) -> None:  # fmt: skip
    """Take over a table from pgai, with its vectors; VECTORIZER is a name or number."""
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
    say(f"{report.taken} of {report.rows} rows {would}taken over with their vectors")
    if report.left:
        say(f"{report.left} rows are left for `evervec worker` to embed")
    if report.sample is not None:
        say(f"stored and fresh vectors of the same texts: cosine {report.sample:.3f} or more")
    for note in report.notes:
        say(f"note: {note}")
    if report.dropped:
        say("pgai has dropped its trigger and queue; the vectors it made are still there")
    elif not dry_run:
        say("pgai's own trigger still runs: stop its worker, and use --drop-vectorizer")


@command("sync", "evervec sync docs/ --watch")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option("--kind", default="doc", show_default=True, help="The kind of its records.")
@click.option("--watch", is_flag=True, help="Go on, and follow what changes.")
@click.option("--every", default=1.0, show_default=True, help="Seconds between two looks.")
@as_json
def sync(where: Where, folder: str, kind: str, watch: bool, every: float, as_json: bool) -> int:
    """Keep a folder in step: changed, renamed and deleted files, once or watching."""
    from evervec.cli.files import snapshot
    from evervec.cli.records import add_files, embed

    with where.opened(make=True) as ev:
        before: Any = None
        while True:
            now = snapshot(folder)
            if now != before:
                counts = {"added": 0, "updated": 0, "unchanged": 0, "deleted": 0, "skipped": 0}
                add_files(ev, kind, (folder,), counts, sync=True, quiet=as_json or watch)
                failed = embed(ev, quiet=as_json or watch)
                before = now
                if as_json:
                    print_json({**counts, "failed": failed})
                else:
                    told = ", ".join(f"{n} {what}" for what, n in counts.items() if n)
                    say(told or "nothing there")
            if not watch:
                return 1 if failed else 0
            try:
                time.sleep(every)
            except KeyboardInterrupt:
                return 0
