"""What the stores of a world stand on."""

from typing import Any

from explorer.disk import Disk


def open_disk(store: str) -> Any:
    """By the name of the store; a driver is imported when it is needed."""
    if store == "postgres":
        from explorer.postgres import PostgresDisk

        return PostgresDisk()
    if store == "duckdb":
        from explorer.duckdb import DuckdbDisk

        return DuckdbDisk()
    return Disk()
