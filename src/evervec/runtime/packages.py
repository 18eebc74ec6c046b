"""Optional packages, imported when they are first used."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path
from typing import Any

from evervec.errors import SettingsError


def install_command(what: str) -> str:
    """The command that installs a package, or an extra such as `evervec[pdf]`, where this program
    runs: pip would install it elsewhere if pipx or uv made the environment."""
    home = Path(sys.prefix)
    if (home / "pipx_metadata.json").exists():
        return f"pipx runpip {home.name} install '{what}'"
    if (receipt := home / "uv-receipt.toml").exists():
        return f"uv tool install {_with_the_rest(what, receipt)}"
    if home.parent.name.startswith("archive-v"):  # in uv's cache, where uvx keeps what it runs
        return f"uvx --with '{what}' …"
    return f"pip install '{what}'"


def _with_the_rest(what: str, receipt: Path) -> str:
    """What `uv tool install` has to be given for one more package or extra. It removes what it is
    not given again, so the receipt of the last installation is repeated."""
    try:
        noted = tomllib.loads(receipt.read_text(encoding="utf-8"))["tool"]["requirements"]
    except (OSError, ValueError, KeyError):
        noted = []
    name, _, extra = what.rstrip("]").partition("[")
    packages = {one["name"]: one for one in [{"name": "evervec"}, *noted]}
    one = packages.setdefault(name, {"name": name})
    one["extras"] = list(dict.fromkeys([*one.get("extras", ()), *([extra] if extra else ())]))
    main, *others = (f"'{_requirement(one)}'" for one in packages.values())
    return " ".join([main, *(f"--with {other}" for other in others)])


def _requirement(noted: dict[str, Any]) -> str:
    """A requirement of uv's receipt, as one gives it to a command."""
    extras = f"[{','.join(noted['extras'])}]" if noted.get("extras") else ""
    places = (noted[kind] for kind in ("path", "directory", "editable", "url") if kind in noted)
    place = next((f" @ {place}" for place in places), noted.get("specifier", ""))
    return f"{noted['name']}{extras}{place}"


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
