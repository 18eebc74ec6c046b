"""SQL kept in `.sql` files, found by name.

A file is a row of blocks, each headed by `-- name: the_name`. What an engine
does differently is a different block under the same name in its own file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files


class Queries:
    """The named blocks of one file: `queries["claim"]`, or as an attribute."""

    def __init__(self, blocks: Mapping[str, str]) -> None:
        self._blocks = dict(blocks)
        vars(self).update(blocks)  # found at once, as searches look for them

    @classmethod
    def read(cls, package: str, name: str) -> Queries:
        text = files(package).joinpath(name).read_text("utf-8")
        parts = re.split(r"^-- name: *(\w+) *$", text, flags=re.MULTILINE)
        return cls({key: body.strip() for key, body in zip(parts[1::2], parts[2::2], strict=True)})

    def __getattr__(self, name: str) -> str:
        raise AttributeError(f"there is no query named {name!r}")

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._blocks.items())
