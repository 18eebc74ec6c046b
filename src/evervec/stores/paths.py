"""Checks the paths of store files, and creates files and folders that only the owner may read."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from evervec.errors import StoreError


def check_readable(path: Path) -> None:
    """Raise `StoreError` with the reason if the path cannot be read."""
    if not path.is_file():
        raise StoreError(f"file {path} does not exist: give the path of a store")
    if not os.access(path, os.R_OK):
        raise StoreError(f"{path} cannot be read: check its permissions")


def check_path(path: Path, example: str) -> None:
    """Raise `StoreError` with the reason if the path cannot be used for a file; `example`: a file
    name to suggest."""
    if path.is_dir():
        raise StoreError(f"{path} is a folder: give the path of a file, such as {path}/{example}")
    if not path.parent.is_dir():
        raise StoreError(
            f"the folder {path.parent} does not exist: create it, or give another path"
        )
    if path.exists() and not os.access(path, os.W_OK):
        raise StoreError(f"{path} cannot be written: check its permissions, or give another path")
    if not path.exists() and not os.access(path.parent, os.W_OK):
        raise StoreError(f"the folder {path.parent} cannot be written: check its permissions")


def make_private_file(path: Path) -> None:
    """Create an empty file that only its owner may read, unless it exists. Errors are ignored: the
    code that opens the file next reports the reason."""
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def make_private_folder(path: Path) -> None:
    """Create a folder that only its owner may enter, unless it exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
