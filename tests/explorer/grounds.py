"""What the stores of a world stand on."""

from explorer.disk import Disk


def open_disk(store: str) -> Disk:
    """By the name of the store."""
    return Disk()
