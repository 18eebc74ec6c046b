"""Commands for the service and for assistants: serve, mcp and dispatch."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import click

from evervec.cli.app import Where, command
from evervec.cli.output import say, show
from evervec.errors import SettingsError
from evervec.records.drafts import check_name
from evervec.runtime.packages import install_command

if TYPE_CHECKING:
    from evervec.integrations.mcp.records import LibraryRecords

_HERE = "http://127.0.0.1:8080"
"""where `serve` listens by default"""
_RETRIES, _CALL_SECONDS = 2, 60.0
"""of a call to a service, for an assistant that waits"""


@command("serve", "evervec --store notes.db serve --port 8080", with_json=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8080, show_default=True, type=click.IntRange(0, 65535),
    help="Port to listen on; 0: any free one.",
)  # fmt: skip
@click.option(
    "--workers-inside", "workers", default=1, show_default=True, type=click.IntRange(0),
    help="Workers in this process; 0 to leave embedding to `evervec worker`.",
)  # fmt: skip
@click.option(
    "--access-log/--no-access-log", default=True, show_default=True,
    help="Log each request on stderr.",
)  # fmt: skip
def serve(where: Where, host: str, port: int, workers: int, access_log: bool) -> None:
    """Serve the store over HTTP, with a dashboard and a worker.

    The worker runs in the same process.

    Until the first key is created with `evervec keys create`, only clients on this machine have
    access, without a key and without restrictions.
    """
    try:
        from evervec.server.access_log import showing_requests
        from evervec.server.serve import serve as run
    except ImportError as error:
        raise SettingsError(
            f"the service needs the package {error.name}: {install_command('evervec[server]')}"
        ) from error
    root = logging.getLogger()
    root.setLevel(min(root.level, logging.WARNING))
    with where.opened(make=True) as ev, showing_requests() if access_log else nullcontext():
        run(ev, host, port, workers, lambda line: say(line, err=True), whole_process=True)


@command("mcp", "evervec --store notes.db mcp --kind note --read-only", with_json=False)
@click.option("--url", metavar="URL", help="Use this service instead of a store.")
@click.option(
    "--key", metavar="KEY", envvar="EVERVEC_KEY", show_envvar=True, help="Key of the service."
)
@click.option("--read-only", is_flag=True, help="Offer only search, get, list and status.")
@click.option("--kind", "kinds", multiple=True, help="Offer only this kind; repeatable.")
@click.option(
    "--describe",
    "described",
    multiple=True,
    metavar="TOOL=TEXT",
    help="Your own description of a tool; repeatable.",
)
@click.option(
    "--workers-inside", "workers", type=click.IntRange(0, 1), metavar="0|1",
    help="Embed in this process.  [1, or 0 with --read-only]",
)  # fmt: skip
def mcp(where: Where, url: str | None, key: str | None, read_only: bool, kinds: tuple[str, ...],
        described: tuple[str, ...], workers: int | None) -> None:  # fmt: skip
    """Let an assistant use the records, over MCP on standard input and output.

    The assistant starts this command and stops it. `evervec serve` offers the same under /mcp.
    """
    try:
        from evervec.integrations.mcp.records import Access
        from evervec.integrations.mcp.server import check_tools, make_server
        from evervec.integrations.mcp.stdio import StdioSession
    except ImportError as error:
        raise SettingsError(
            f"MCP needs the package {error.name}: {install_command('evervec[mcp]')}"
        ) from error
    descriptions = dict(map(_description, described))
    check_tools(descriptions)  # before a store is created
    for kind in kinds:
        check_name("kind", kind)
    inside = not read_only if workers is None else bool(workers)
    with _library(where, url, key, worker=inside, make=not read_only) as records:
        access = Access(records, not read_only, kinds or None)
        if sys.stdin.isatty():
            say(
                "this is for an assistant, which starts it by itself: see `evervec mcp --help`; stop "
                "with Ctrl-C",
                err=True,
            )
        session = StdioSession(make_server(lambda _: access, descriptions))
        session.wait()
    session.end()


@contextmanager
def _library(
    where: Where, url: str | None, key: str | None, *, worker: bool, make: bool
) -> Iterator[LibraryRecords]:
    """The store, with a worker for it, or the service."""
    from evervec.integrations.mcp.records import LibraryRecords

    if url is not None:
        from evervec.client import Client

        if where.store or where.index or where.embedder or where.app:
            raise click.UsageError("give --url, or a store with its index and embedder, not both")
        with Client(url, key, tenant=where.tenant, retries=_RETRIES) as client:
            yield LibraryRecords(client, _CALL_SECONDS)
        return
    with where.opened(make=make) as ev, ev.worker() if worker else nullcontext():
        embeds = not (worker and ev.embedder.name == "noop")
        if not embeds:
            say("no embedder: searches compare words only (see `evervec doctor`)", err=True)
        yield LibraryRecords(ev, ev.settings.server_seconds, embeds=embeds)


def _description(given: str) -> tuple[str, str]:
    tool, equals, text = given.partition("=")
    if not equals or not text.strip():
        raise click.UsageError(f"--describe {given}: write it as TOOL=TEXT")
    return tool, text


@command("dispatch", "evervec dispatch --to https://app.example.com")
@click.option(
    "--to",
    metavar="URL",
    help="URL of the service that runs the jobs.  [public_url, else this machine]",
)
@click.option(
    "--limit", default=10, show_default=True, type=click.IntRange(1), help="Maximum number of jobs."
)
def dispatch(where: Where, to: str | None, limit: int, as_json: bool) -> int:
    """Dispatch due jobs once, for a cron job where no worker can run."""
    with where.opened() as ev:
        done = ev.dispatcher.dispatch(limit, to or ev.settings.public_url or _HERE)
        why = ev.provider.pauses_because()
    counts = f"{done.claimed} claimed, {done.published} published, {done.released} released"
    show(as_json, done, counts)
    if why and not as_json:
        say(f"embedding is paused: {why}", err=True)
    return 1 if done.released else 0
