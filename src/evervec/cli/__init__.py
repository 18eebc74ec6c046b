"""The command line: `evervec COMMAND`."""

from __future__ import annotations


def main() -> None:
    """Run the command line; exit 0 when done, 1 when failed, 2 when used wrongly."""
    from evervec.cli.app import run

    run()
