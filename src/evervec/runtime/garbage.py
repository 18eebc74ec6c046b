"""The garbage collector of a process that runs for long."""

from __future__ import annotations

import gc


def keep_what_is_loaded() -> None:
    """Let the collector leave out all that exists by now.

    Modules and settings stay until the process ends, but each collection of old objects looks at
    every one of them. That took a fifth of the processor time of a search or an add over HTTP. For
    the process of a command: in a program of others, what stays is theirs to say."""
    gc.collect()
    gc.freeze()
