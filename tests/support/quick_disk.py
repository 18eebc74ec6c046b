"""Temporary files in memory, where there is room: most of what tests wait for is the disk."""

import os
import shutil
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
_NEEDED = 4 << 30


def use() -> None:
    """For this process and all that it starts, unless TMPDIR says otherwise."""
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK):
        return
    if shutil.disk_usage(_MEMORY).free > _NEEDED:
        os.environ["TMPDIR"] = str(_MEMORY)
        tempfile.tempdir = None  # so that it is looked up anew
