"""Commands for the index: backfill, verify, reindex."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from evervec.cli.app import Where, command, write_audit
from evervec.cli.output import (
    print_json,
    print_table,
    progress,
    say,
    show,
    styled,
)
from evervec.cli.saved_jobs import process_all
from evervec.model.findings import FAULTS, QUICK
from evervec.model.phrases import counted
from evervec.model.verification import records_to_check, repair_target

if TYPE_CHECKING:
    from evervec.model.findings import VerifyReport
    from evervec.model.reports import Backfill


@command("backfill", "evervec backfill --dry-run")
@click.option("--kind", help="Only this kind.")
@click.option("--dry-run", is_flag=True, help="Only show the estimate.")
def backfill(where: Where, kind: str | None, dry_run: bool, as_json: bool) -> None:
    """Enqueue records without current vectors, after all other jobs."""
    with where.opened() as ev:
        plan = ev.backfill(kind, dry_run=True)
        if not as_json:
            say(_estimate(plan))
        if not dry_run and plan.records + plan.rendered:
            total = sum(v.items for v in ev.versions(all_tenants=True) if kind in (None, v.kind))
            with progress("scanning", total, quiet=as_json) as bar:
                plan = ev.backfill(kind, progress=bar.advance)
            if not as_json:
                say(f"{plan.enqueued} enqueued; `evervec worker` embeds them")
    if as_json:
        print_json(plan)


def _estimate(plan: Backfill) -> str:
    if not plan.records + plan.rendered:
        return "every record has current vectors, or a job to make them"
    again = f", {plan.rendered} of them rendered again" if plan.rendered else ""
    money = f", {plan.money:.4f}" if plan.money else ""
    count = max(plan.records, plan.rendered)
    return (
        f"{count} records lack current vectors{again}: at most {plan.tokens:,} tokens{money}; "
        "unchanged chunks cost nothing"
    )


@command("verify", "evervec verify --all-tenants --repair")
@click.option("--repair", is_flag=True, help="Repair and embed what is wrong, then verify again.")
@click.option("--quick", is_flag=True, help="Do not compare the records' texts.")
@click.option("--all-tenants", is_flag=True, help="Check the records of all tenants.")
@click.option("--kind", metavar="KIND", help="Check only this kind.")
@click.option(
    "--fault", "faults", multiple=True, type=click.Choice(FAULTS),
    help="With --repair: repair only records with this fault; repeatable.",
)  # fmt: skip
def verify(where: Where, repair: bool, quick: bool, all_tenants: bool, kind: str | None,
           faults: tuple[str, ...], as_json: bool) -> int:  # fmt: skip
    """Check that index and records agree.

    Exit code 0: they agree. 1: something is wrong, or failed. 3: nothing is wrong, but some
    records wait for a worker, or could not be checked.
    """
    if faults and not repair:
        raise click.UsageError("--fault says what to repair: give --repair too")
    with where.opened() as ev:

        def check(repair: bool) -> VerifyReport:
            held = records_to_check(ev.versions(all_tenants=all_tenants), kind)
            with progress("verifying", held, quiet=as_json) as bar:
                return ev.verify(
                    repair, quick=quick, all_tenants=all_tenants, kind=kind, faults=faults or None,
                    progress=bar.advance,
                )  # fmt: skip

        report, left, waits = check(repair), None, None
        if repair:
            what = repair_target(kind, faults)
            write_audit(ev, "index.repair", what, everyone=all_tenants)
        if repair and not report.clean:
            process_all(ev, quiet=as_json)
            left = check(False)
            if ev.queue.stats().pending:
                waits = ev.provider.pauses_because() or ev.embedder_because
    if as_json:
        print_json(_facts(report) | {"left": left and _facts(left)})
    else:
        _show_report(report)
        if left is not None and not report.repaired and left.faults == report.faults:
            say("nothing was repaired")
        elif left is not None:
            say(f"{report.repaired} repaired; after that:")
            _show_report(left)
        if waits:
            say(f"embedding is paused: {waits}")
        elif left is None and report.faults:
            say("to repair, run `evervec verify --repair`")
    return 1 if waits else _exit_code(left or report, quick)


def _exit_code(report: VerifyReport, quick: bool) -> int:
    if not report.clean or report.failed:
        return 1
    left_out = [what for what in report.unchecked if not (quick and what == QUICK)]
    return 3 if report.waiting or left_out else 0


def _facts(report: VerifyReport) -> dict[str, Any]:
    return {**dataclasses.asdict(report), "clean": report.clean, "complete": report.complete}


def _show_report(report: VerifyReport) -> None:
    say(f"{counted(report.checked, 'record')} checked")
    for name, count in report.faults.items():
        say(f"{count} {name}")
    for trouble in report.troubles:
        say(styled(f"table {trouble}", "red"))
    if report.failed:
        say(f"{report.failed} failed: see `evervec jobs --status failed`")
    if report.waiting:
        say(f"{report.waiting} not checked: waiting for a worker, or changing now")
    for what in report.unchecked:
        say(f"not checked: {what}")
    if report.complete:
        say("the index holds exactly the latest version of each record")
    elif report.clean:
        say("no faults among the checked records")
    elif len(report.by) > 1:
        head = [field.name for field in dataclasses.fields(report.by[0])]
        print_table(head, [dataclasses.astuple(tally) for tally in report.by])


@command("reindex", "evervec --store notes.db reindex lancedb://vectors")
@click.argument("url", metavar="URL")
def reindex(where: Where, url: str, as_json: bool) -> None:
    """Move to another index, and rebuild all vectors there.

    URL is that of the index, or `own` for the store's own database. First stop the workers and
    services that use the current index. If the new index already holds the vectors, because it
    was moved or copied, nothing is embedded again.
    """
    if where.app:
        raise click.UsageError("reindex does not work with --app: give --store instead")
    with dataclasses.replace(where, index=url).opened(reindex=True) as ev:
        facts = {"index": "own" if ev.index.shares_store else ev.index.url,
                 "waiting": ev.queue.stats().pending}  # fmt: skip
    waiting = f"{facts['waiting']} records wait for a worker"
    show(as_json, facts, f"the index is {facts['index']}; {waiting}")
