"""docs/settings.md lists every setting as `Settings` has it."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path

from evervec.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def rows() -> list[str]:
    found = []
    for f in fields(Settings):
        default = "" if f.default is MISSING else f"{f.default}"
        variable = (
            f"`EVERVEC_{f.name.upper()}`" if f.type in ("int", "float", "str", "bool") else ""
        )
        found.append(f"| `{f.name}` | {default} | {f.metadata['meaning']} | {variable} |")
    return found


def test_the_settings_page_has_every_setting_with_its_default_and_meaning() -> None:
    listed = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert listed == rows()
