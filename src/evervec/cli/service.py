"""Commands for the service: serve and dispatch."""

from __future__ import annotations

import logging

import click

from evervec.cli.app import Where, command
from evervec.cli.output import say, show
from evervec.errors import SettingsError

_HERE = "http://127.0.0.1:8080"
"""where `serve` listens by default"""


@command("serve", "evervec --store notes.db serve --port 8080", with_json=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535))
@click.option(
    "--workers-inside", "workers", default=1, show_default=True, type=click.IntRange(0),
    help="Workers in this process; 0 to leave embedding to `evervec worker`.",
)  # fmt: skip
def serve(where: Where, host: str, port: int, workers: int) -> None:
    """Serve the store over HTTP, with a worker in the same process.

    Until the first key is created with `evervec keys create`, only clients on this machine have
    access, without a key and without restrictions.
    """
    try:
        from evervec.server.serve import serve as run
    except ImportError as error:
        raise SettingsError(
            f"the service needs the package {error.name}: pip install 'evervec[server]'"
        ) from error
    root = logging.getLogger()
    root.setLevel(min(root.level, logging.WARNING))
    with where.opened(make=True) as ev:
        run(ev, host, port, workers, lambda line: say(line, err=True), whole_process=True)


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
