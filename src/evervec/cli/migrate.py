"""Commands for models: which made which vectors, and the change to another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from evervec.cli.app import Where, as_json, command, note
from evervec.cli.output import duration, print_json, print_table, progress, say, say_text

if TYPE_CHECKING:
    from evervec.facade import Evervec
    from evervec.model.reports import Comparison, Estimate, MigrationStatus
    from evervec.versions.migration import Migration

_STEPS = ("compare", "switch", "rollback", "retire", "cancel")


@command("versions", "evervec versions")
@as_json
def versions(where: Where, as_json: bool) -> None:
    """Which model made which vectors."""
    with where.opened() as ev:
        found = ev.versions(all_tenants=True)
    if as_json:
        print_json(found)
    elif not found:
        say("no vectors yet")
    else:
        print_table(
            ("kind", "version", "provider", "model", "dimensions", "state", "records", "table",
             "created", "last sync"),
            [
                (v.kind, v.name or "-", v.provider, v.model, v.dimensions, v.state, v.items,
                 v.table or "-", v.created_at, v.last_sync_at)
                for v in found
            ],
        )  # fmt: skip


@command("migrate", "evervec migrate openai:text-embedding-3-large --switch")
@click.argument("to", metavar="[EMBEDDER]", required=False)
@click.option("--version", help="What to call the new version.  [after its model]")
@click.option("--kind", help="Only this kind.")
@click.option("--dry-run", is_flag=True, help="Only say what it would take.")
@click.option("--background", is_flag=True, help="Leave the work to workers that run elsewhere.")
@click.option("--compare", is_flag=True, help="How the new version answers beside the old one.")
@click.option("--switch", is_flag=True, help="Let the new version serve, once it is complete.")
@click.option("--rollback", is_flag=True, help="Let the old version serve again.")
@click.option("--retire", is_flag=True, help="Give the old version up, and its vectors.")
@click.option("--cancel", is_flag=True, help="Give the new version up.")
@as_json
def migrate(
    where: Where,
    to: str | None,
    version: str | None,
    kind: str | None,
    dry_run: bool,
    background: bool,
    as_json: bool,
    **steps: bool,
) -> int:
    """Change the model while searches and writes go on; with no EMBEDDER, the change under way.

    The new version is built beside the old one, which is kept for a way back until --retire.
    """
    asked = [step for step in _STEPS if steps[step]]
    if len(asked) > 1 or (to and asked not in ([], ["switch"])):
        raise click.UsageError(f"give one of --{', --'.join(_STEPS)}; EMBEDDER goes with --switch")
    with where.opened() as ev:
        if to is None:
            return _take(ev, asked[0] if asked else None, as_json)
        plan = ev.estimate(to, kind=kind, all_tenants=True)
        if not as_json:
            say(_planned(plan))
        if dry_run:
            if as_json:
                print_json(plan)
            return 0
        migration = ev.migrate(to, version=version, kind=kind, switch=steps["switch"])
        note(ev, "migration.begin", to, everyone=True)
        status = migration.status() if background else _build(ev, migration, as_json)
    if as_json:
        print_json(status)
    else:
        say_text(_told(status))
    return 0 if background or status.complete or status.state in ("switched", "finished") else 1


def _build(ev: Evervec, migration: Migration, as_json: bool) -> MigrationStatus:
    """Work until it is complete, with whoever else works."""
    status = migration.status()
    with progress("embedding", status.records, quiet=as_json) as bar, ev.worker():
        shown = 0

        def show(status: MigrationStatus) -> None:
            nonlocal shown
            bar.expect(status.records)
            bar.advance(max(0, status.current - shown))
            shown = max(shown, status.current)

        return migration.wait(progress=show)


def _take(ev: Evervec, step: str | None, as_json: bool) -> int:
    migration = ev.migration()
    if migration is None:
        say(
            "evervec: no change of the model is under way: `evervec migrate EMBEDDER` begins one",
            err=True,
        )
        return 1
    if step == "compare":
        compared = migration.compare()
        if as_json:
            print_json(compared)
        else:
            say_text(_compared(compared))
        return 0 if compared.report.clean else 1
    if step is not None:
        getattr(migration, step)()
        note(ev, f"migration.{step}", everyone=True)
    if step in ("retire", "cancel"):
        ev.migrations.finish()
    status = migration.status()
    if as_json:
        print_json(status)
    else:
        say_text(_told(status))
    return 0


def _planned(plan: Estimate) -> str:
    money = f", {plan.money:.4f}" if plan.money else ""
    return (
        f"{plan.records:,} records, about {plan.chunks:,} chunks and {plan.tokens:,} tokens{money}; "
        f"about {duration(plan.seconds)} of embedding, by a sample"
    )


def _compared(compared: Comparison) -> str:
    if compared.overlap is None:
        told = "there is nothing to compare"
    else:
        told = (
            f"{compared.overlap:.0%} of the best {compared.k} hits are the same, over "
            f"{compared.queries} questions taken from the records"
        )
    report = compared.report
    wrong = [f"{count} {name}" for name, count in report.found.items()]
    return (
        f"{told}\n{report.checked} records checked: {', '.join(wrong) or 'all as they should be'}"
        f"{f'; {report.waiting} wait and were not checked' if report.waiting else ''}"
    )


def _told(status: MigrationStatus) -> str:
    kinds = ", ".join(status.kinds)
    head = f"{status.version} ({kinds}): {status.state}" if kinds else f"{status.version}: gone"
    next_ = {
        "switched": "`evervec migrate --rollback` goes back, --retire gives the old version up",
        "rolled back": "`evervec migrate --switch` goes forth, --cancel gives the new version up",
    }.get(status.state)
    if status.state == "building":
        head += f", {status.current} of {status.records} records"
        head += f", {status.failed} failed" if status.failed else ""
        next_ = "it goes on with `evervec worker`, or the same command again"
        if status.complete:
            next_ = "`evervec migrate --compare` shows how it answers, --switch lets it serve"
        elif status.settled:
            next_ = "`evervec jobs --status failed` tells why; retry, or cancel"
    return f"{head}\n{next_}" if next_ else head
