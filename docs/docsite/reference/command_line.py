"""The page of commands, from the parser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc

import click

from docsite.reference.markdown import code, sections, table
from evervec.cli.app import cli


def commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command with its full name, such as `keys create`."""
    yield from _inside("", cli, click.Context(cli, info_name="evervec"))


def _inside(
    prefix: str, group: click.Group, context: click.Context
) -> Iterator[tuple[str, click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from _inside(f"{prefix}{name} ", command, inner)
        else:
            yield prefix + name, command, inner


def page() -> str:
    common = [option for option in cli.params if isinstance(option, click.Option)]
    return sections(
        "# Commands",
        "Every command, argument and option, as `evervec COMMAND --help` shows them. "
        "[Command line](../cli.md) introduces the commands by task.",
        "## Common options",
        "They may come before or after the command.",
        _options(common, click.Context(cli, info_name="evervec")),
        *(_section(*each) for each in commands()),
    )


def _section(name: str, command: click.Command, context: click.Context) -> str:
    usage = " ".join(command.collect_usage_pieces(context))
    options = [o for o in command.params if isinstance(o, click.Option) and not o.hidden]
    return sections(
        f"## evervec {name}",
        _words(command.help or ""),
        f"```sh\nevervec {name} {usage}\n```",
        _options(options, context),
        _example(command.epilog or ""),
    )


def _options(options: list[click.Option], context: click.Context) -> str:
    rows = []
    for option in options:
        found = option.get_help_record(context)
        if found:
            spelling, meaning = found
            rows.append((code(spelling), _words(meaning)))
    return table(("option", "meaning"), rows)


def _words(text: str) -> str:
    """Help text without click's marks, with its angle brackets and stars as characters."""
    kept = re.sub(r"\x08\n?", "", cleandoc(text))
    return re.sub(r"([<*_])", r"\\\1", kept)


def _example(epilog: str) -> str:
    lines = [line.strip() for line in epilog.replace("\b", "").splitlines()]
    shown = [line for line in lines if line and not line.startswith("Example")]
    return "For example:\n\n```sh\n" + "\n".join(shown) + "\n```" if shown else ""
