"""Whether a store's file can be where it is wanted."""

from __future__ import annotations

import os
from pathlib import Path

from evervec.errors import StoreError


def check_readable(path: Path) -> None:
    """Refuse a path that cannot be read, saying why."""
    if not path.is_file():
        raise StoreError(f"there is no file {path}: give the path of a store")
    if not os.access(path, os.R_OK):
        raise StoreError(f"{path} cannot be read: check its rights")


def check_path(path: Path, example: str) -> None:
    """Refuse a path that no file can have, saying why; `example`: a good name for one."""
    if path.is_dir():
        raise StoreError(f"{path} is a folder: give the path of a file, such as {path}/{example}")
    if not path.parent.is_dir():
        raise StoreError(f"the folder {path.parent} does not exist: make it, or give another path")
    if path.exists() and not os.access(path, os.W_OK):
        raise StoreError(f"{path} cannot be written: check its rights, or give another path")
    if not path.exists() and not os.access(path.parent, os.W_OK):
        raise StoreError(f"the folder {path.parent} cannot be written: check its rights")
