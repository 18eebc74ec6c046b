"""The settings file of the command line: `evervec.toml` in the working directory.

Its values are used like environment variables that are not set, so options and the environment take
precedence. It may come with a folder that others wrote; so it cannot name secrets, nor servers that secrets
and texts are sent to, nor who is trusted.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from evervec.errors import SettingsError
from evervec.settings import Settings
from evervec.telemetry.visible import without_secrets

FILE = "evervec.toml"
_PLACES = ("store", "index", "embedder")
_ELSEWHERE = ("reranker", "trusted_proxies", "open_without_keys")
_TYPES = ("int", "float", "str", "bool")


def load_config(path: str = FILE) -> None:
    """Set the environment variables of a settings file that are not set yet."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    try:
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    for name, value in values.items():
        _check(path, name, value)
    for name, value in values.items():
        os.environ.setdefault(f"EVERVEC_{name.upper()}", _as_text(value))


def write_config(values: Mapping[str, str], path: str = FILE) -> None:
    """Write a settings file."""
    lines = [
        "# Settings of the evervec command in this folder. Options and EVERVEC_… variables override",
        "# them; docs/settings.md lists all. Keys and passwords belong in the environment.",
        *(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()),
    ]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def has_secret(url: str) -> bool:
    """Whether a URL contains a password."""
    return without_secrets(url) != url


def _check(path: str, name: str, value: Any) -> None:
    known = {f.name: f for f in fields(Settings) if f.type in _TYPES}
    if name not in known and name not in _PLACES:
        close = difflib.get_close_matches(name, [*known, *_PLACES], 1)
        hint = f"did you mean {close[0]!r}?" if close else "see docs/settings.md"
        raise SettingsError(f"{path}: unknown setting {name!r}; {hint}")
    if isinstance(value, dict | list) or (name in _PLACES and not isinstance(value, str)):
        raise SettingsError(f'{path}: {name} must be a single value, such as {name} = "…"')
    secret = name in known and known[name].metadata["secret"]
    if secret or name.endswith("_url") or name in _ELSEWHERE:
        raise SettingsError(
            f"{path}: {name} cannot be set in this file, because the file may come from others: "
            f"set EVERVEC_{name.upper()} in the environment"
        )
    if isinstance(value, str) and name in _PLACES and has_secret(value):
        raise SettingsError(
            f"{path}: {name} contains a password: set EVERVEC_{name.upper()} in the environment"
        )


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
