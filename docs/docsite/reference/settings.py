"""The table of all settings."""

from dataclasses import MISSING, fields

from docsite.reference.markdown import code, table
from evervec.settings import Settings


def table_rows() -> list[tuple[str, str, str, str]]:
    """Name, default, meaning and environment variable of each setting."""
    return [
        (
            code(f.name),
            "" if f.default in (MISSING, "") else code(f.default),
            f.metadata["meaning"] + _bounds(f.metadata.get("least"), f.metadata.get("most")),
            code(f"EVERVEC_{f.name.upper()}") if f.type in ("int", "float", "str", "bool") else "",
        )
        for f in fields(Settings)
    ]


def _bounds(least: float | None, most: float | None) -> str:
    """The allowed range, where it says more than that a number is not negative."""
    if most is not None:
        return f" ({least or 0:g} to {most:g})"
    return f" (at least {least:g})" if least else ""


def made_table() -> str:
    return table(("setting", "default", "meaning", "environment"), table_rows())
