"""What all commands share: common options, opening the store, errors and exit codes."""

from __future__ import annotations

import builtins
import difflib
import getpass
import importlib
import io
import keyword
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from evervec.cli.environment import unknown_variables
from evervec.errors import EvervecError, InvalidArgument, StoreError
from evervec.telemetry.visible import visible_text

if TYPE_CHECKING:
    from evervec.facade import Evervec

F = TypeVar("F", bound=Callable[..., Any])

# a module is imported only when one of its commands runs
_COMMANDS = {
    "setup": ("init", "partition", "uninstall"),
    "records": ("add", "sync", "get", "list", "delete"),
    "search": ("search", "similar", "kinds"),
    "tables": ("attach", "detach", "tables", "import-pgai"),
    "streams": ("follow",),
    "transfer": ("export", "import"),
    "jobs": (
        "jobs",
        "job",
        "retry",
        "recover",
        "purge",
        "cancel",
        "priority",
        "pause",
        "resume",
    ),
    "observation": ("history", "failures", "dismiss", "workers"),
    "migrate": ("migrate", "versions"),
    "index": ("verify", "backfill", "reindex"),
    "operation": ("status", "worker", "doctor", "demo"),
    "service": ("serve", "mcp", "dispatch"),
    "access": ("keys", "audit", "limits"),
    "help": ("help",),
}
_TITLES = {"tables": "Existing data", "streams": "Change streams", "migrate": "Models"}
"""of the sections in the help, where it is not the module's name"""
_HOMES = {name: home for home, names in _COMMANDS.items() for name in names}


@dataclass(frozen=True)
class Where:
    """Which store, index, embedder and tenant a command works with."""

    store: str | None = None
    index: str | None = None
    embedder: str | None = None
    tenant: str | None = None
    app: str | None = None

    @contextmanager
    def opened(self, *, make: bool = False, **settings: Any) -> Iterator[Evervec]:
        """Open the store, or take the application's own from `--app module:ev`. A missing store
        is created only with `make`, so that a mistyped path does not create an empty store."""
        if self.app:
            yield _load_app(self.app)
            return
        from evervec.stores.location import store_file

        path = store_file(self.store)
        if not make and path is not None and not path.exists():
            raise StoreError(
                f"store {path} does not exist: create it with `evervec init` or `evervec add`, or "
                "give another one with --store"
            )
        from evervec.opening import leaving_no_empty_store, open

        with (
            leaving_no_empty_store(self.store) if make else nullcontext(),
            open(
                self.store,
                index=self.index,
                embedder=self.embedder or "auto",
                tenant=self.tenant or "default",
                **settings,
            ) as ev,
        ):
            yield ev


def write_audit(ev: Evervec, action: str, target: str = "", *, everyone: bool = False) -> None:
    """Write an entry to the audit log, under the name of the operating system's user."""
    from evervec.server.audit import EVERY_TENANT, Audit

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user has no name, as in some containers
        user = str(os.getuid())
    tenant = EVERY_TENANT if everyone else ev.tenant
    Audit(ev.store).note(f"command line ({user})", tenant, action, target)


def _common(hidden: bool) -> list[click.Option]:
    return [
        click.Option(["--store"], metavar="URL", hidden=hidden,
                     help="Path or URL of the store.  [$EVERVEC_STORE, evervec.toml, else ./evervec.db]"),
        click.Option(["--index"], metavar="URL", hidden=hidden,
                     help="URL of the vector index, or own.  [the store's current index]"),
        click.Option(["--embedder"], metavar="NAME", hidden=hidden,
                     help="auto, ollama[:MODEL], openai[:MODEL], local[:MODEL], st:MODEL, hashing or noop.  [auto]"),
        click.Option(["--tenant"], metavar="T", hidden=hidden, help="Tenant.  [default]"),
        click.Option(["--app"], metavar="MODULE:EV", hidden=hidden,
                     help="Use the open store, with its kinds, of your own program."),
    ]  # fmt: skip


class Command(click.Command):
    """A command that also accepts the common options after its name."""

    def __init__(self, *args: Any, with_json: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if with_json:
            flags = ["--json", "as_json"]
            self.params.append(click.Option(flags, is_flag=True, help="Print JSON."))
        self.params += _common(hidden=True)

    def invoke(self, ctx: click.Context) -> Any:
        given = {
            name: value
            for name in Where.__dataclass_fields__
            if (value := ctx.params.pop(name, None)) is not None
        }
        ctx.obj = replace(ctx.obj or Where(), **given)
        if os.path.exists("evervec.toml"):
            from evervec.cli.config import load_config

            load_config()
        return super().invoke(ctx)


class Commands(click.Group):
    """The commands, loaded when needed; suggests a name for a mistyped one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_HOMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        home = _HOMES.get(cmd_name)
        if home is None:
            return None
        taken = keyword.iskeyword(cmd_name) or hasattr(builtins, cmd_name)
        attribute = cmd_name.replace("-", "_") + "_" * taken
        found: click.Command = getattr(importlib.import_module(f"evervec.cli.{home}"), attribute)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in _HOMES:
            close = difflib.get_close_matches(args[0], _HOMES, 1)
            hint = f"did you mean '{close[0]}'?" if close else "see evervec --help."
            raise click.UsageError(f"unknown command '{args[0]}'; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for home, names in _COMMANDS.items():
            rows = [
                (name, command.get_short_help_str(80))
                for name in names
                if (command := self.get_command(ctx, name)) is not None
            ]
            with formatter.section(_TITLES.get(home, home.capitalize())):
                formatter.write_dl(rows)


def command(name: str, example: str, *, with_json: bool = True) -> Callable[[F], click.Command]:
    """Make a command whose help ends with an example. `with_json`: it has the option `--json`, as
    all commands that print data."""

    def made(function: F) -> click.Command:
        return click.command(
            name, cls=Command, with_json=with_json, epilog=f"\b\nExample:\n  {example}",
            context_settings={"help_option_names": ["-h", "--help"]},
        )(click.pass_obj(function))  # fmt: skip

    return made


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="evervec", message="evervec %(version)s")
@click.option("-v", "--verbose", is_flag=True, help="Log more, on stderr.")
@click.option(
    "--log-json", is_flag=True, envvar="EVERVEC_LOG_JSON",
    help="Log JSON objects on stderr, with job and request ids.",
)  # fmt: skip
@click.pass_context
def cli(ctx: click.Context, /, verbose: bool, log_json: bool, **where: str | None) -> None:
    """Keep a vector index in sync with your data.

    \b
    Shell completion: eval "$(_EVERVEC_COMPLETE=bash_source evervec)"   (or zsh_source,
    fish_source), in your shell's start-up file.
    """
    logging.basicConfig(
        level=logging.INFO if verbose else logging.ERROR, format="%(levelname)s %(message)s"
    )
    if log_json:
        from evervec.telemetry.logs import JsonFormatter

        root = logging.getLogger()
        root.setLevel(logging.INFO)
        for handler in root.handlers:
            handler.setFormatter(JsonFormatter())
        logging.getLogger("httpx").setLevel(logging.WARNING)  # Qdrant's client logs each call by it
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    for sentence in unknown_variables(os.environ):
        if log_json:
            logging.getLogger("evervec").warning(sentence)
        else:
            click.echo(f"evervec: {visible_text(sentence)}", err=True)
    ctx.obj = Where(**where)


cli.params[:0] = _common(hidden=False)


def run() -> None:
    """Run the command line. Errors are printed as one sentence. Files that it creates are
    readable by their owner only."""
    os.umask(os.umask(0o077) | 0o077)
    try:
        code = cli.main(prog_name="evervec", standalone_mode=False)
    except click.exceptions.Exit as exit:
        code = exit.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = _complain("interrupted; saved records are kept", 130)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        click.echo(visible_text(shown.getvalue()), err=True, nl=False)
        code = error.exit_code
    except EvervecError as error:
        code = _complain(str(error), 2 if isinstance(error, InvalidArgument) else 1)
        if code == 1 and type(error) is not EvervecError:
            click.echo(f"(see `evervec help {type(error).__name__}`)", err=True)
    except BrokenPipeError:  # the reader of our output has exited, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str, code: int) -> int:
    click.echo(f"evervec: {visible_text(message)}", err=True)
    return code


def _load_app(spec: str) -> Evervec:
    from evervec.facade import Evervec

    name, _, attribute = spec.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(name), attribute or "ev")
    except (ImportError, AttributeError) as error:
        raise click.UsageError(f"--app {spec}: {error}") from None
    made = found() if callable(found) else found
    if not isinstance(made, Evervec):
        raise click.UsageError(
            f"--app {spec} is of type {type(made).__name__}, not an Evervec from evervec.open"
        )
    return made
