"""The command that explains commands and errors."""

from __future__ import annotations

import difflib
import inspect

import click

import evervec
from evervec import errors
from evervec.cli.app import Where, command
from evervec.cli.output import say, styled
from evervec.errors import EvervecError


@command("help", "evervec help LeaseLost", with_json=False)
@click.argument("name", required=False)
@click.pass_context
def help_(ctx: click.Context, where: Where, name: str | None) -> None:
    """Explain a command, or an error by its name."""
    above = ctx.parent
    assert above is not None
    assert isinstance(above.command, click.Group)
    if name is None:
        click.echo(above.get_help())
    elif (found := above.command.get_command(above, name)) is not None:
        with found.make_context(name, [], above, resilient_parsing=True) as inner:
            click.echo(found.get_help(inner))
    elif (error := _ERRORS.get(name.lower())) is not None:
        _explain(error)
    else:
        known = [*above.command.list_commands(above), *(e.__name__ for e in _ERRORS.values())]
        close = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean '{close[0]}'?" if close else "see `evervec help`"
        raise click.UsageError(f"there is no command or error '{name}'; {hint}")


def _explain(error: type[EvervecError]) -> None:
    say(styled(error.__name__, "bold"))
    for paragraph in inspect.cleandoc(error.__doc__ or "").split("\n\n"):
        say(" ".join(paragraph.split()))
    if error.__base__ not in (Exception, EvervecError) and error.__base__ is not None:
        say(f"It is a {error.__base__.__name__}.")
    home = "evervec" if error.__name__ in evervec.__all__ else error.__module__
    say(f"In Python: {home}.{error.__name__}")
    say(
        f"Over HTTP: a problem document of the type urn:evervec:{error.__name__}, which the service "
        f"explains at /docs#error-{error.__name__}"
    )


_ERRORS = {
    name.lower(): found
    for name, found in vars(errors).items()
    if isinstance(found, type) and issubclass(found, EvervecError)
}
