"""Commands that set up a folder, split a database's tables, and remove evervec from it: init, partition,
uninstall."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from pathlib import Path

import click

from evervec.cli.app import Where, command
from evervec.cli.config import FILE, has_secret, write_config
from evervec.cli.output import progress, say, show
from evervec.errors import EvervecError, InvalidArgument

_HAVE = ("files", "table", "service")
_MODELS = ("local", "openai", "ollama", "noop")
_NEXT = {
    "files": ("add doc FOLDER", "search 'a question'"),
    "table": ("attach TABLE --text COLUMN", "worker"),
    "service": ("keys create --role writer", "serve"),
}


@command("init", "evervec init --have files --model local")
@click.option("--have", type=click.Choice(_HAVE), help="What you want to search.")
@click.option(
    "--model", type=click.Choice(_MODELS),
    help="Where texts are embedded: on this machine, or by a provider; noop: nowhere.",
)  # fmt: skip
@click.option("--force", is_flag=True, help=f"Overwrite {FILE}.")
def init(where: Where, have: str | None, model: str | None, force: bool, as_json: bool) -> None:
    """Create the store, and write a settings file.

    On a terminal it asks for what is not given. Elsewhere it writes the file only if --have or
    --model is given. Keys and passwords are never written.
    """
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not as_json
    writes = asks or have is not None or model is not None
    if writes and Path(FILE).exists() and not force:
        if not asks:
            raise InvalidArgument(f"{FILE} exists: give --force to overwrite it")
        _confirm(f"{FILE} exists. Overwrite it?")
    if asks:
        have = have or _ask("What do you want to search?", _HAVE)
        model = model or where.embedder or _ask("Where should texts be embedded?", _MODELS)
    store = where.store or os.environ.get("EVERVEC_STORE") or "evervec.db"
    chosen = where if model is None else Where(store, where.index, model, where.tenant, where.app)
    with chosen.opened(make=True) as ev:
        facts = {"store": ev.store.url, "embedder": ev.embedder.name, "model": ev.embedder.model}
    hidden = has_secret(store)
    if writes:
        wanted = {"store": "" if hidden else store, "embedder": model or where.embedder or ""}
        write_config({name: value for name, value in wanted.items() if value})
    named = f" ({facts['model']})" if facts["model"] else ""
    ready = f"{facts['store']} is ready; embedder: {facts['embedder']}{named}"
    show(as_json, facts, ready)
    if as_json:
        return
    if writes:
        say(f"{FILE} is written; commands in this folder use it")
        if hidden:
            say("the store's URL contains a password and is not in it: set EVERVEC_STORE")
    options = "" if writes else _given_options(where)
    first, *others = _NEXT[have] if have else ("add KIND FILES…",)
    say(f"next: evervec {options}{first}")
    for line in others:
        say(f"      evervec {options}{line}")


@command("partition", "evervec partition 16")
@click.argument("parts", type=click.IntRange(2, 256), required=False)
@click.option("--undo", is_flag=True, help="Drop what an interrupted command has copied.")
def partition(where: Where, parts: int | None, undo: bool, as_json: bool) -> None:
    """Split the tables of a PostgreSQL store into PARTS partitions.

    Workers, services and searches go on. Tables are copied one after the other, so the database needs
    room for a second copy of the largest. Run it again after an interruption: it continues. Tables that
    are split already stay as they are.
    """
    if (parts is None) is not undo:
        raise click.UsageError("give the number of partitions, or --undo")
    logging.getLogger("evervec").setLevel(logging.WARNING)  # it tells what is waited for
    copied: dict[str, int] = {}
    with where.opened() as ev, progress("copying", unit="blocks", quiet=as_json) as bar:

        def advance(table: str, done: int, size: int) -> None:
            if table not in copied and not as_json:
                say(f"{table}: {size:,} blocks")
            bar.advance(done - copied.get(table, 0))
            copied[table] = done

        tables = ev.store.partition(parts or 0, advance)
    named = ", ".join(tables)
    if undo:
        text = f"dropped the copies of {named}" if tables else "there are no copies"
    else:
        text = (
            f"split into {parts} partitions: {named}" if tables else "all tables are split already"
        )
    show(as_json, {"tables": tables}, text)


@command("uninstall", "evervec --store app.db uninstall")
@click.option("--yes", is_flag=True, help="Do not ask.")
def uninstall(where: Where, yes: bool, as_json: bool) -> None:
    """Remove evervec from a database: its triggers, tables and vectors.

    Records of all tenants are deleted. Your own tables stay as they are. Stop workers and services
    first.
    """
    with where.opened() as ev:
        records = sum(version.items for version in ev.versions(all_tenants=True))
        facts = {"store": ev.store.url, "tables": [t.table for t in ev.tables()]}
        followed = f", no longer follows {', '.join(facts['tables'])}" if facts["tables"] else ""
        if not yes:
            if not sys.stdin.isatty():
                raise InvalidArgument("nothing was removed: give --yes to remove evervec")
            say(f"This deletes evervec's records and {records:,} vectors{followed}.")
            _confirm(f"Remove evervec from {ev.store.url}?")
        if not ev.index.shares_store:
            for collection in ev.store.versions.collections():
                ev.index.drop(collection.version)
        ev.store.uninstall()
    show(as_json, facts, f"evervec is removed from {facts['store']}{followed}")


def _given_options(where: Where) -> str:
    """The options that name the store and the model, for the next commands. One with a password is
    left out."""
    given = {"store": where.store, "index": where.index, "embedder": where.embedder}
    return "".join(
        f"--{name} {shlex.quote(value)} "
        for name, value in given.items()
        if value and not has_secret(value)
    )


def _confirm(question: str) -> None:
    if not click.confirm(question):
        raise EvervecError("nothing was changed")


def _ask(question: str, choices: tuple[str, ...]) -> str:
    answer: str = click.prompt(question, type=click.Choice(choices), default=choices[0])
    return answer
