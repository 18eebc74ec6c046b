"""Optional packages, imported when they are first used."""

from __future__ import annotations

import importlib
from typing import Any

from evervec.errors import SettingsError


def load_package(name: str, user: str, install: str) -> Any:
    """A module of an optional package. If it is not installed, the error names what needs it and
    how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = (error.name or name).partition(".")[0]
        raise SettingsError(
            f"{user} needs the package {package}: pip install '{install}'"
        ) from None


def load_arrow(user: str, module: str = "pyarrow") -> Any:
    return load_package(module, user, "evervec[parquet]")
