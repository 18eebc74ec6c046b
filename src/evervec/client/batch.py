"""Records as the bodies of requests, one by one or as the lines of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evervec.client.connection import to_json
from evervec.errors import EvervecError, InvalidArgument, InvalidRecord
from evervec.records.drafts import check_metadata, read_envelope, record_id

_LINES, _BYTES = 1000, 4 << 20
"""lines and bytes after which a request of `add_many` is sent"""


class Batch:
    """Records as lines of a request of limited size. Each gets its id before it is sent."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.lines: list[bytes] = []
        self.position = 0
        """of the first line in the input of `add_many`"""
        self.error: EvervecError | None = None
        """of a record that cannot be sent; those before it are sent"""
        self._size = 0

    def take(self, item: Any) -> bool:
        """Add a record; returns whether the lines must be sent before the next."""
        try:
            text, options = (item, {}) if hasattr(item, "model_dump") else read_envelope(item)
            body = body_of(self._kind, text, {**options, "id": record_id(options.get("id"))})
            line = to_json(body)
        except (InvalidArgument, InvalidRecord) as error:
            self.error = InvalidRecord(str(error), position=self.position + len(self.lines))
            return True
        self.lines.append(line)
        self._size += len(line)
        return len(self.lines) >= _LINES or self._size >= _BYTES

    def sent(self) -> None:
        self.position += len(self.lines)
        self.lines, self._size = [], 0


def body_of(kind: str, data: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a request that adds a record."""
    content = {"text": data} if isinstance(data, str) else {"data": data}
    given = {name: value for name, value in options.items() if value is not None}
    if given.get("metadata"):
        check_metadata(given["metadata"], None)  # JSON takes dates, which records do not
    if "vectors" in given:
        from evervec.records.vectors import read_vectors, to_texts  # numpy only where it is used

        given["vectors"] = to_texts(read_vectors(given["vectors"]))
    return {"kind": kind, **content, **given}
