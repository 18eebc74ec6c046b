"""Optional packages, imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from evervec.errors import SettingsError


def install_command(what: str) -> str:
    """The command that installs a package, or an extra such as `evervec[pdf]`, where this program
    runs: pip would install it elsewhere if pipx or uv made the environment."""
    home = Path(sys.prefix)
    if (home / "pipx_metadata.json").exists():
        return f"pipx runpip {home.name} install '{what}'"
    source = f"'{what}'" if what.startswith("evervec") else f"evervec --with '{what}'"
    if (home / "uv-receipt.toml").exists():
        return f"uv tool install {source}"
    if home.parent.name.startswith("archive-v"):  # in uv's cache, where uvx keeps what it runs
        return f"uvx --from {source} evervec"
    return f"pip install '{what}'"


def load_package(name: str, user: str, install: str) -> Any:
    """A module of an optional package. If it is not installed, the error names what needs it and
    how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = (error.name or name).partition(".")[0]
        raise SettingsError(
            f"{user} needs the package {package}: {install_command(install)}"
        ) from None


def load_arrow(user: str, module: str = "pyarrow") -> Any:
    return load_package(module, user, "evervec[parquet]")
