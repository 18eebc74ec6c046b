"""Commands of `manage.py` that are those of `evervec`, on the store of a database."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import click
from django.core.management.base import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS

from evervec.cli.app import Where, cli
from evervec.errors import EvervecError
from evervec.facade import Evervec
from evervec.integrations.django.stores import open_store

_COMMON = frozenset(Where.__dataclass_fields__) - {"tenant"}
"""options of all commands that say where the store is: here the settings do"""


@dataclass(frozen=True)
class DjangoWhere(Where):
    """The store of a Django database, as EVERVEC says."""

    database: str = DEFAULT_DB_ALIAS

    @contextmanager
    def opened(self, *, make: bool = False, **settings: Any) -> Iterator[Evervec]:
        given = settings if self.tenant is None else {"tenant": self.tenant, **settings}
        with open_store(self.database, **given) as ev:
            yield ev


class StoreCommand(BaseCommand):
    """A command of `evervec` with the same options, arguments and exit codes."""

    runs: ClassVar[str]
    """the name of the command of `evervec`"""
    requires_system_checks: ClassVar[list[str]] = []

    @property
    def help(self) -> str:
        return _command(self.runs).help or ""

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument(
            "--database", default=DEFAULT_DB_ALIAS, help="Alias of the database with the store."
        )
        for param in _params(self.runs):
            parser.add_argument(*_flags(param), **_argparse(param))

    def handle(self, *_: Any, **options: Any) -> None:
        args = [arg for param in _params(self.runs) for arg in _given(param, options)]
        out = getattr(self.stdout, "_out", sys.stdout)
        try:
            with contextlib.redirect_stdout(out):
                code = _command(self.runs).main(
                    args, f"manage.py evervec_{self.runs}", standalone_mode=False,
                    obj=DjangoWhere(database=options["database"]),
                )  # fmt: skip
        except click.ClickException as error:
            raise CommandError(error.format_message(), returncode=error.exit_code) from error
        except EvervecError as error:
            raise CommandError(str(error)) from error
        if code:
            sys.exit(code)


def _command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def _params(name: str) -> list[click.Parameter]:
    return [p for p in _command(name).params if p.name not in _COMMON]


def _flags(param: click.Parameter) -> list[str]:
    return list(param.opts) if isinstance(param, click.Option) else [str(param.name)]


def _argparse(param: click.Parameter) -> dict[str, Any]:
    """A parameter for Django's parser; click checks its value."""
    if not isinstance(param, click.Option):
        return {"nargs": None if param.required else "?"}
    made: dict[str, Any] = {"dest": param.name, "help": (param.help or "").replace("%", "%%")}
    if param.is_flag:
        return {**made, "action": "store_true"}
    return {**made, "action": "append" if param.multiple else "store"}


def _given(param: click.Parameter, options: dict[str, Any]) -> Iterator[str]:
    """A parameter as click is given it."""
    value = options.get(str(param.name))
    if value is None or value is False:
        return
    if not isinstance(param, click.Option):
        yield str(value)
    elif param.is_flag:
        yield param.opts[0]
    else:
        for one in value if param.multiple else [value]:
            yield from (param.opts[0], str(one))
