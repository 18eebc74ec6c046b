"""The command line: `evervec COMMAND`.

`app` has the group and what all commands share, `output` how results are shown; each other module has
the commands of one subject. Commands call the facade, `evervec.files`, `evervec.server` and
`evervec.integrations`; nothing imports them.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line; exit 0 when done, 1 when failed, 2 when used wrongly."""
    from evervec.cli.app import run

    run()
