"""Bulk: export what waits, embed elsewhere, import the vectors, while others edit.

Two queues stand beside it, by processor time: the same store worked by `process_all` with an embedder
that costs nothing, and with the local model, which bulk leaves to other machines. The first shows what
the import itself costs: it makes the same durable writes as a worker, so they are alike. The second is
what an import saves this machine.

While the file is away and while it is imported, a thread edits and deletes records. It fails unless
every row is written or refused, and `verify` is complete after a worker has done the rest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import evervec
from benchmarks.made_up import DIMENSIONS, NoCost, texts, vectors
from benchmarks.table import Line, at_least
from evervec import Embedder
from evervec.embedders.minilm import MiniLM


def run(*, quick: bool) -> Sequence[Line]:
    records = 20_000 if quick else 1_000_000
    with TemporaryDirectory(prefix="evervec-bench-") as folder:
        queue = _queue(Path(folder) / "queue.db", min(records, 100_000), NoCost())
        model = _queue(Path(folder) / "model.db", 500 if quick else 5_000, MiniLM())
        exported, imported, refused = bulk(Path(folder), records)
    return [
        Line("export --pending", "1/s", exported),
        Line("import --vectors", "1/s", imported, "queue, no model", queue),
        Line("import --vectors", "1/s", imported, "queue, local model", model, at_least(5)),
        Line("refused, changed meanwhile", "records", refused),
    ]


def bulk(folder: Path, records: int) -> tuple[float, float, int]:
    """Rates of export and import, in records per second of processor time, and rows refused."""
    with evervec.open(folder / "bulk.db", embedder=NoCost()) as ev:
        _fill(ev, records)
        out, back = folder / "out.parquet", folder / "in.parquet"
        exported = _rate(records, lambda: ev.export_pending(out))
        over = threading.Event()
        editor = threading.Thread(target=_edit, args=(ev, records, over))
        editor.start()
        embed_file(out, back)
        found: list[Any] = []
        imported = _rate(records, lambda: found.append(ev.import_vectors(back)))
        over.set()
        editor.join()
        (done,) = found
        assert done.written + done.refused == done.records == records, done
        ev.process_all()
        report = ev.verify()
        assert report.complete, report
    return exported, imported, done.refused


def embed_file(source: Path, target: Path) -> None:
    """Prepared vectors for each text, a row group at a time, as an engine elsewhere would."""
    prepared = vectors(256)
    writer = None
    for batch in pq.ParquetFile(source).iter_batches(10_000):
        counts = batch.column("texts").value_lengths().to_numpy()
        total = int(counts.sum())
        flat = np.concatenate([prepared] * (total // len(prepared) + 1))[:total]
        rows = pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), DIMENSIONS)
        rows = rows.cast(pa.list_(pa.float32()))
        ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        made = pa.Table.from_batches([batch]).drop_columns(["texts"])
        made = made.append_column("vectors", pa.ListArray.from_arrays(pa.array(ends), rows))
        writer = writer or pq.ParquetWriter(target, made.schema)
        writer.write_table(made)
    if writer is not None:
        writer.close()


def _edit(ev: evervec.Evervec, records: int, over: threading.Event) -> None:
    """Edit and delete records all over the file, at most a hundred a second."""
    for n in count():
        id = n * 7919 % records
        if n % 5:
            ev.add("note", f"edited {n}", id=str(id))
        else:
            ev.delete("note", str(id))
        if over.wait(0.01):
            return


def _queue(path: Path, records: int, embedder: Embedder) -> float:
    with evervec.open(path, embedder=embedder) as ev:
        _fill(ev, records)
        return _rate(records, ev.process_all)


def _fill(ev: evervec.Evervec, records: int) -> None:
    made = texts(1000, 20)
    for _ in ev.add_many(
        "note", ({"id": n, "text": f"{n} {made[n % 1000]}"} for n in range(records))
    ):
        pass


def _rate(records: int, do: Callable[[], object]) -> float:
    began = time.process_time()
    do()
    return records / (time.process_time() - began)
