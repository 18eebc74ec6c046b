"""How a setting is declared, read from an environment variable, and checked."""

from __future__ import annotations

import difflib
import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, field
from typing import Any, NoReturn

from evervec.errors import SettingsError


def setting(
    default: Any,
    meaning: str,
    *,
    least: float | None = None,
    most: float | None = None,
    secret: bool = False,
) -> Any:
    """A field of a dataclass, with its meaning and bounds. `secret`: it is never shown."""
    meta = {"meaning": meaning, "least": least, "most": most, "secret": secret}
    if callable(default):
        return field(default_factory=lambda: default, metadata=meta)
    return field(default=default, repr=not secret, metadata=meta)


def setting_values(
    declared: Iterable[Field[Any]], given: Mapping[str, Any], environ: Mapping[str, str]
) -> dict[str, Any]:
    """The values that are given, or set by an environment variable `EVERVEC_…`; `SettingsError` says
    which one is unknown or invalid."""
    known = {f.name: f for f in declared}
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else "see evervec.Settings."
            raise SettingsError(f"unknown setting {name!r}; {hint}")
    values = dict(given)
    for name, f in known.items():
        variable = f"EVERVEC_{name.upper()}"
        if name not in values and f.type in _CAST and environ.get(variable):
            values[name] = _from_text(variable, environ[variable], str(f.type))
    for name, value in values.items():
        _check(name, value, str(known[name].type), known[name].metadata)
    return values


def variables_of(declared: Iterable[Field[Any]]) -> set[str]:
    """The environment variables that set them."""
    return {f"EVERVEC_{f.name.upper()}" for f in declared if f.type in _CAST}


def _truth(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise ValueError
    return word in _TRUE


_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_CAST: Mapping[Any, Callable[[str], Any]] = {
    "int": int, "float": float, "str": str, "bool": _truth,
}  # fmt: skip


def _from_text(variable: str, text: str, kind: str) -> Any:
    try:
        return _CAST[kind](text)
    except ValueError:
        raise SettingsError(f"{variable} must be {_NOUN[kind]}, not {text!r}") from None


_NOUN = {"int": "a whole number", "float": "a number", "bool": "true or false"}


def _check(name: str, value: Any, kind: str, meta: Mapping[str, Any]) -> None:
    def refuse(what: str, shown: str = repr(value)) -> NoReturn:
        raise SettingsError(f"{name} must be {what}, not {shown} ({meta['meaning']})")

    if name == "clock" and not callable(value):
        raise SettingsError(f"clock must be a function that returns seconds, not {value!r}")
    if name == "rng" and not isinstance(value, random.Random):
        raise SettingsError(f"rng must be a random.Random, not {value!r}")
    if name == "alert_url" and value and not str(value).startswith(("http://", "https://")):
        raise SettingsError("alert_url must begin with http:// or https://")
    if kind == "str" and not isinstance(value, str):
        refuse("text", type(value).__name__)
    if kind == "bool" and not isinstance(value, bool):
        refuse("True or False")
    if kind not in ("int", "float"):
        return
    accepted = (int,) if kind == "int" else (int, float)
    if isinstance(value, bool) or not isinstance(value, accepted) or not math.isfinite(value):
        refuse(_NOUN[kind])
    least, most = meta["least"], meta["most"]
    if least is not None and value < least:
        refuse(f"at least {least}")
    if most is not None and value > most:
        refuse(f"at most {most}")
