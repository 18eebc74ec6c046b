"""The columns of an exported file: one row for each record. Also how Parquet files are read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from evervec.errors import InvalidArgument
from evervec.runtime.packages import load_arrow

FORMAT_NAME, FORMAT_NUMBER = b"evervec", b"1"
"""the file's metadata: the number of the format by its name"""
REPEATED = ["kind", "provider", "model", "embedding_version"]
"""columns with few different values"""


def pyarrow() -> tuple[Any, Any]:
    """`pyarrow` and `pyarrow.parquet`, imported when they are first used."""
    user = "a Parquet file"
    return load_arrow(user), load_arrow(user, "pyarrow.parquet")


@contextmanager
def parquet_file(path: str | os.PathLike[str]) -> Iterator[Any]:
    """A file to read. Damage that is met inside the block raises `InvalidArgument`."""
    pa, pq = pyarrow()
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        if getattr(error, "errno", None) is not None:  # such as that there is no such file
            raise
        raise InvalidArgument(f"{path} cannot be read as Parquet: {error}") from None


def schema() -> Any:
    pa, _ = pyarrow()
    time = pa.timestamp("us", "UTC")
    chunk = pa.struct([("hash", pa.binary()), ("start", pa.int32()), ("end", pa.int32())])
    columns = {
        "kind": pa.string(),
        "id": pa.string(),
        "seq": pa.int64(),
        "version": pa.int64(),
        "title": pa.string(),
        "text": pa.string(),
        "metadata": pa.string(),
        "data": pa.string(),
        "weight": pa.float64(),
        "created_at": time,
        "updated_at": time,
        # of the vectors; null where there are none
        "provider": pa.string(),
        "model": pa.string(),
        "dimensions": pa.int32(),
        "embedding_version": pa.string(),
        "chunks": pa.list_(chunk),
        "vectors": pa.list_(pa.list_(pa.float32())),
    }
    return pa.schema(list(columns.items()), metadata={FORMAT_NAME: FORMAT_NUMBER})
