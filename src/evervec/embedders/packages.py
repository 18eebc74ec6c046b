"""Finds installed packages and the files in them without importing them.

Importing a package only to check for it can take seconds, and some packages change the caller's
logging.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

from evervec.errors import SettingsError


def require(packages: tuple[str, ...], extra: str) -> None:
    """Raise `SettingsError` with the command that installs what is missing."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise SettingsError(
            f"this embedder needs {' and '.join(missing)}, which is not installed: "
            f"pip install 'evervec[{extra}]'"
        )


def folder_of(package: str) -> Path:
    """The folder of an installed package."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SettingsError(f"the package {package} is not installed")
    return Path(spec.submodule_search_locations[0])


def read_checked(file: Path, sha256: str, origin: str) -> bytes:
    """Read a file and check its hash; `origin` is what pip installs it from."""
    mend = f"pip install --force-reinstall --no-deps '{origin}'"
    try:
        content = file.read_bytes()
    except OSError as error:
        raise SettingsError(f"{file} cannot be read ({error.strerror}): {mend}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise SettingsError(
            f"{file} is damaged or from another release (its SHA-256 is unexpected): {mend}"
        )
    return content
