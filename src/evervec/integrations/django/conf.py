"""The setting EVERVEC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from evervec.errors import SettingsError
from evervec.settings import Settings


@dataclass(frozen=True)
class Configuration:
    """EVERVEC as a project has set it; all keys may be left out."""

    store: str | None = None
    """a store outside of Django's databases; None: in the database of each model"""
    index: str | None = None
    embedder: Any = "auto"
    tenant: str = "default"
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls) -> Configuration:
        """Raises `SettingsError`."""
        given = getattr(settings, "EVERVEC", {})
        if not isinstance(given, Mapping):
            raise SettingsError(f"EVERVEC must be a dict, not {type(given).__name__}")
        known = {name.upper(): name for name in cls.__dataclass_fields__}
        for key in given:
            if key not in known:
                close = get_close_matches(str(key).upper(), known, 1)
                hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(known)}"
                raise SettingsError(f"unknown key {key!r} in EVERVEC: {hint}")
        read = cls(**{known[key]: value for key, value in given.items()})
        if not isinstance(read.options, Mapping):
            raise SettingsError("EVERVEC['OPTIONS'] must be a dict of evervec's settings")
        return read

    def check_options(self) -> None:
        """Raises `SettingsError` for options that `evervec.open` would refuse."""
        Settings.load(dict(self.options))

    def make_embedder(self) -> Any:
        """The embedder by name or as an object; a dotted path names an object, or what makes it."""
        given = self.embedder
        if not isinstance(given, str) or "." not in given.partition(":")[0]:
            return given
        try:
            found = import_string(given)
        except ImportError as error:
            raise SettingsError(f"EVERVEC['EMBEDDER'] cannot be imported: {error}") from error
        return found() if callable(found) else found
