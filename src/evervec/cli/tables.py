"""Commands for existing data: attach, detach, tables, import-pgai."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from evervec.cli.app import Where, command
from evervec.cli.output import estimate_line, print_json, say, show, show_list, styled
from evervec.errors import InvalidArgument, StoreError
from evervec.model.phrases import counted

if TYPE_CHECKING:
    from evervec.tables.base import Attachment


@command("attach", "evervec --store app.db attach articles --text title --text body")
@click.argument("table", required=False)
@click.option("--kind", help="Kind of its records.  [the table's name]")
@click.option("--id", "key", multiple=True, help="Column of its key; may be repeated.  [id]")
@click.option(
    "--text", multiple=True,
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
@click.option(
    "--again", is_flag=True,
    help="Use what was given before; without TABLE, for all that are no longer followed.",
)  # fmt: skip
@click.option("--to", metavar="NAME", help="With --again: the table's new name.")
@click.option(
    "--dry-run", is_flag=True, help="Change nothing; print the SQL and an estimate of the cost."
)
def attach(where: Where, table: str | None, kind: str | None, key: tuple[str, ...],
           text: tuple[str, ...], title: str | None, metadata: tuple[str, ...],
           weight: str | None, updated_at: str | None, tenant_column: str | None, replace: bool,
           again: bool, to: str | None, dry_run: bool, as_json: bool) -> int:  # fmt: skip
    """Index a table of the store's database and keep it in sync.

    With --again, attach TABLE (or a kind) as before: after a schema migration that rebuilt or
    renamed it, or dropped its triggers.
    """
    given: dict[str, Any] = {
        "kind": kind, "id": list(key) or "id",
        "text": text[0] if len(text) == 1 else list(text), "title": title,
        "metadata": metadata, "weight": weight, "updated_at": updated_at,
        "tenant": tenant_column,
    }  # fmt: skip
    if again:
        if replace or any(value for name, value in given.items() if name != "id") or key:
            raise click.UsageError("--again uses what was given before: give only TABLE and --to")
        return _attach_again(where, table, to, dry_run, as_json)
    if table is None or not text or to is not None:
        raise click.UsageError(
            "name the columns to embed with --text (or use --again, if TABLE was attached before)"
        )
    rows = None
    if where.app is None:  # the database may have no store, and gets none for a wrong attempt
        from evervec.facade.dry_run import check_attachment, plan_attachment
        from evervec.settings import Settings
        from evervec.tables.base import attachment

        wanted = attachment(table, **given, owner=where.tenant or "default")
        settings = Settings.load({})
        if dry_run:
            embedder = where.embedder or "auto"
            made = plan_attachment(where.store, wanted, settings, embedder, replace=replace)
        else:
            check_attachment(where.store, wanted, settings, replace=replace)
    if not dry_run or where.app is not None:
        with where.opened(make=True) as ev:
            made = ev.attach(table, **given, replace=replace, dry_run=dry_run)
            rows = ev.attachments.source.count(made) if ev.attachments.source else None
    if dry_run:
        show(as_json, _plan_facts(made), *_plan_lines(made))
    else:
        count = "an unknown number of rows" if rows is None else f"about {counted(rows, 'row')}"
        facts = {"table": made.table, "kind": made.kind, "rows": rows, "sql": list(made.sql)}
        attached = f"{table} is attached as {made.kind}; it has {count}"
        show(as_json, facts, attached, "`evervec worker` embeds them and keeps them in sync")
    return 0


def _attach_again(
    where: Where, table: str | None, to: str | None, dry_run: bool, as_json: bool
) -> int:
    """Attach each table by itself, so that all are tried and each is reported."""
    facts, failed = [], 0
    with where.opened() as ev:
        if table is None:
            wanted = [t.attachment for t in ev.tables() if t.state == "broken"]
        else:
            wanted = ev.attachments.attachments_of(table)
            if to is not None and len(wanted) > 1:
                ev.attach_again(table, to=to)  # is refused, and says which kinds there are
        for before in wanted:
            kind = before.kind
            try:
                (made,) = ev.attach_again(before, to=to, dry_run=dry_run)
            except (InvalidArgument, StoreError) as error:
                failed += 1
                facts.append({"kind": kind, "error": str(error)})
                say(styled(f"{kind}: {error}", "red"), err=True)
                continue
            facts.append(_plan_facts(made))
            if not as_json:
                for line in _plan_lines(made) if dry_run else [_again_line(made)]:
                    say(line)
    if as_json:
        print_json(facts)
    elif not wanted:
        say("every attached table is followed: nothing to do")
    return 1 if failed else 0


def _again_line(made: Attachment) -> str:
    return (
        f"{made.table} is attached again as {made.kind}; `evervec worker` checks all of its rows "
        "and embeds those that changed"
    )


def _plan_facts(made: Attachment) -> dict[str, Any]:
    found = {"table": made.table, "kind": made.kind, "sql": list(made.sql)}
    return found if made.estimate is None else {**found, "estimate": asdict(made.estimate)}


def _plan_lines(made: Attachment) -> list[str]:
    assert made.estimate is not None
    return [
        *(f"{statement};" for statement in made.sql),
        f"-- {made.table} as {made.kind}: {estimate_line(made.estimate)}; nothing was changed",
    ]


@command("tables", "evervec tables")
def tables(where: Where, as_json: bool) -> None:
    """List the attached tables, and whether each is still followed."""
    with where.opened() as ev:
        found = ev.tables()
    show_list(as_json, found, "no table is attached: see `evervec attach --help`", {
        "table": "table", "kind": "kind", "state": "state", "rows": "rows",
        "embedded": "embedded", "columns": lambda t: ", ".join(t.attachment.columns),
    })  # fmt: skip
    for broken in (t for t in found if t.trouble and not as_json):
        say(styled(f"{broken.kind}: {broken.trouble}", "red"))


@command("detach", "evervec --store app.db detach articles")
@click.argument("table")
@click.option("--keep-records", is_flag=True, help="Keep the records that were indexed.")
def detach(where: Where, table: str, keep_records: bool, as_json: bool) -> None:
    """Stop indexing a table; drops its triggers and deletes its records."""
    with where.opened() as ev:
        gone = ev.detach(table, keep_records=keep_records)
    facts = {"table": table, "records": gone}
    show(as_json, facts, f"{table} is detached; {counted(gone, 'record')} deleted")


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
