"""Commands for embedding versions: versions, migrate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from evervec.cli.app import Where, command, write_audit
from evervec.cli.output import estimate_line, print_json, progress, say, show, show_list
from evervec.errors import EvervecError
from evervec.model.phrases import duration

if TYPE_CHECKING:
    from evervec.facade import Evervec
    from evervec.model.reports import Comparison, MigrationStatus
    from evervec.versions.migration import Migration

_STEPS = ("compare", "switch", "rollback", "retire", "cancel")


@command("versions", "evervec versions")
def versions(where: Where, as_json: bool) -> None:
    """List the embedding versions: which model made which vectors."""
    with where.opened() as ev:
        found = ev.versions(all_tenants=True)
    show_list(as_json, found, "no vectors yet", {
        "kind": "kind", "version": lambda v: v.name or "-", "provider": "provider",
        "model": "model", "dimensions": "dimensions", "state": "state", "records": "items",
        "table": lambda v: v.table or "-", "created": "created_at", "last sync": "last_sync_at",
    })  # fmt: skip


@command("migrate", "evervec migrate openai:text-embedding-3-large --switch")
@click.argument("to", metavar="[EMBEDDER]", required=False)
@click.option("--version", help="Name of the new version.  [derived from its model]")
@click.option("--kind", help="Only this kind.")
@click.option("--dry-run", is_flag=True, help="Only show the estimate.")
@click.option("--background", is_flag=True, help="Leave the work to other workers.")
@click.option("--compare", is_flag=True, help="Compare search results of both versions.")
@click.option("--switch", is_flag=True, help="Serve the new version, once it is complete.")
@click.option("--rollback", is_flag=True, help="Serve the old version again.")
@click.option("--retire", is_flag=True, help="Drop the old version and its vectors.")
@click.option("--cancel", is_flag=True, help="Drop the new version.")
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
    """Change the model without downtime; without EMBEDDER, show the current migration.

    The new version is built beside the old one, which is kept for --rollback until --retire.
    """
    asked = [step for step in _STEPS if steps[step]]
    if len(asked) > 1 or (to and asked not in ([], ["switch"])):
        raise click.UsageError(f"give one of --{', --'.join(_STEPS)}; EMBEDDER only with --switch")
    with where.opened() as ev:
        if to is None:
            return _take(ev, asked[0] if asked else None, as_json)
        plan = ev.estimate(to, kind=kind, all_tenants=True)
        if not as_json:
            say(estimate_line(plan))
        if dry_run:
            if as_json:
                print_json(plan)
            return 0
        migration = ev.migrate(to, version=version, kind=kind, switch=steps["switch"])
        write_audit(ev, "migration.begin", to, everyone=True)
        status = migration.status() if background else _build(ev, migration, as_json)
    show(as_json, status, *_status_lines(status))
    return 0 if background or status.complete or status.state in ("switched", "finished") else 1


def _build(ev: Evervec, migration: Migration, as_json: bool) -> MigrationStatus:
    """Process jobs until the migration is complete, beside other workers."""
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
        raise EvervecError("no migration in progress: start one with `evervec migrate EMBEDDER`")
    if step == "compare":
        compared = migration.compare()
        show(as_json, compared, *_comparison_lines(compared))
        return 0 if compared.report.clean else 1
    if step is not None:
        getattr(migration, step)()
        write_audit(ev, f"migration.{step}", everyone=True)
    if step in ("retire", "cancel"):
        ev.drop_retired()
    status = migration.status()
    show(as_json, status, *_status_lines(status))
    return 0


def _comparison_lines(compared: Comparison) -> list[str]:
    if compared.overlap is None:
        overlap = "nothing to compare"
    else:
        overlap = (
            f"{compared.overlap:.0%} of the top {compared.k} hits are the same, over "
            f"{compared.queries} queries taken from the records"
        )
    report = compared.report
    wrong = [f"{count} {name}" for name, count in report.found.items()]
    waiting = f"; {report.waiting} waiting and not checked" if report.waiting else ""
    faults = ", ".join(wrong) or "no faults"
    return [overlap, f"{report.checked} records checked: {faults}{waiting}"]


def _status_lines(status: MigrationStatus) -> list[str]:
    """The state, and what to do next."""
    kinds = ", ".join(status.kinds)
    head = f"{status.version} ({kinds}): {status.state}" if kinds else f"{status.version}: gone"
    next_ = {
        "switched": "`evervec migrate --rollback` switches back, --retire drops the old version",
        "rolled back": "`evervec migrate --switch` switches forward again, "
        "--cancel drops the new version",
    }.get(status.state)
    if status.state == "building":
        head += f", {status.current} of {status.records} records"
        head += f", {status.failed} failed" if status.failed else ""
        if status.seconds_left is not None:
            head += f", about {duration(status.seconds_left)} left"
        next_ = "to continue, run `evervec worker` or the same command again"
        if status.complete:
            next_ = (
                "`evervec migrate --compare` compares both versions, --switch serves the new one"
            )
        elif status.settled:
            next_ = "see `evervec jobs --status failed`; then retry the jobs, or cancel"
    return [head, next_] if next_ else [head]
