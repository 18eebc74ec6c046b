"""Reads data frames as records: one for each row, a portion at a time.

Whatever exports an Arrow stream is a data frame: tables and readers of pyarrow, frames of pandas and
polars, relations of DuckDB.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from evervec.errors import InvalidRecord
from evervec.records.drafts import check_fields
from evervec.runtime.packages import load_arrow

if TYPE_CHECKING:
    from evervec.records.kinds import Kind

_ROWS = 1000
"""rows that are Python objects at the same time; a frame may be a single batch"""
_INDEX = re.compile(r"__index_level_\d+__")
"""the columns that pandas makes of an index without a name"""
Read = Callable[[Any], Any]


class ArrowStream(Protocol):
    """What exports its rows by Arrow's PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def read_records(records: Any, kind: Kind | None = None) -> Iterable[Any]:
    """The rows of a data frame as dicts, to be added as records of a kind; anything else as it is.

    Nulls are left out, except in a field that the kind's model requires: the model may allow them
    there. For a kind without a model, metadata may be JSON text.
    """
    if not hasattr(records, "__arrow_c_stream__"):
        return records  # type: ignore[no-any-return]
    pa = load_arrow("a data frame in add_many")
    try:
        reader = pa.RecordBatchReader.from_stream(records)
    except pa.ArrowInvalid:
        if isinstance(records, Iterable):  # a single column, such as a series of texts
            return records
        raise
    return _rows(reader, kind)


def _rows(reader: Any, kind: Kind | None) -> Iterator[dict[str, Any]]:
    names = [name for name in reader.schema.names if not _INDEX.fullmatch(name)]
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidRecord(f"the data frame has {count} columns {name[:40]!r}: rename them")
    if kind is None or not kind.reads_fields:
        check_fields(names)
    required = frozenset[str]() if kind is None else kind.required_fields
    has_model = kind is not None and kind.model is not None
    read = {name: _reader(reader.schema.field(name).type) for name in names}
    for batch in reader:
        for start in range(0, batch.num_rows, _ROWS):
            part = batch.slice(start, _ROWS)
            columns = {name: _values(part.column(name), read[name]) for name in names}
            if "metadata" in columns and not has_model:
                columns["metadata"] = list(map(_parsed, columns["metadata"]))
            for *values, _ in zip(*columns.values(), range(part.num_rows), strict=True):
                yield {
                    name: value
                    for name, value in zip(names, values, strict=True)
                    if value is not None or name in required
                }


def _values(column: Any, read: Read | None) -> list[Any]:
    if str(column.type).startswith("timestamp[ns"):  # Python's times have microseconds
        pa = load_arrow("a data frame in add_many")
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    values: list[Any] = column.to_pylist()
    return values if read is None else list(map(read, values))


def _reader(of: Any) -> Read | None:
    """What makes Python's value of an Arrow type from what `to_pylist` returns: dicts of maps, and
    structs without the fields that are null. None: it is the same."""
    from pyarrow import types

    if types.is_struct(of):
        inner = {field.name: _reader(field.type) or _same for field in of}
        return _where_given(
            lambda value: {
                name: inner[name](part) for name, part in value.items() if part is not None
            }
        )
    if types.is_map(of):
        item = _reader(of.item_type) or _same
        return _where_given(lambda pairs: {name: item(part) for name, part in pairs})
    if types.is_nested(of) and hasattr(of, "value_type"):
        each = _reader(of.value_type)
        if each is not None:
            return _where_given(lambda values: list(map(each, values)))
    return None


def _where_given(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _same(value: Any) -> Any:
    return value


def _parsed(metadata: Any) -> Any:
    """Metadata of JSON text; text that is no JSON is refused later, with its position."""
    if not isinstance(metadata, str):
        return metadata
    try:
        return json.loads(metadata)
    except (ValueError, RecursionError):
        return metadata
