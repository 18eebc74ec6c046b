"""Transfer: export from one store, import into another, for each pair of stores.

The source is filled and embedded, with a chunk each; then a Parquet file is written, imported, and
worked until nothing is due. It fails unless nothing was embedded on the way and `verify` of the
target is complete. Rates are records per second, of the whole machine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import evervec
from benchmarks.made_up import NoCost, texts
from benchmarks.postgres_server import database, server
from benchmarks.table import Line

STORES = ("sqlite", "duckdb", "postgres")


def run(*, quick: bool, only: str = "") -> Sequence[Line]:
    """`only`: pairs such as `sqlite-postgres,duckdb-sqlite`."""
    records = 5_000 if quick else 100_000
    pairs = only.split(",") if only else [f"{s}-{t}" for s in STORES for t in STORES]
    lines: list[Line] = []
    with server() as url, TemporaryDirectory(prefix="evervec-bench-") as folder:
        for source in STORES:
            targets = [target for target in STORES if f"{source}-{target}" in pairs]
            file = Path(folder) / f"{source}.parquet"
            found = _exported(source, url, file, records) if targets else iter(())
            for line in chain(
                found, *(_imported(source, target, url, file, records) for target in targets)
            ):
                print(f"{line.what}: {line.evervec:,.0f} {line.unit}", file=sys.stderr, flush=True)
                lines.append(line)
    return lines


def _exported(source: str, url: str, file: Path, records: int) -> Iterator[Line]:
    with _store(source, url) as place, evervec.open(place, embedder=NoCost()) as ev:
        _fill(ev, records)
        yield Line(f"export from {source}", "1/s", _rate(records, lambda: ev.export(file)))
    yield Line(f"file from {source}", "bytes a record", file.stat().st_size / records)


def _imported(source: str, target: str, url: str, file: Path, records: int) -> Iterator[Line]:
    embedder = NoCost()
    with _store(target, url) as place, evervec.open(place, embedder=embedder) as ev:
        saved = _rate(records, lambda: ev.import_(file))
        worked = _rate(records, ev.process_all)
        report = ev.verify()
        assert embedder.texts == 0, f"{embedder.texts} texts were embedded"
        assert report.complete, report
        assert report.checked == records, report
    yield Line(f"{source} to {target}, import", "1/s", saved)
    yield Line(f"{source} to {target}, worker", "1/s", worked)


def _fill(ev: evervec.Evervec, records: int) -> None:
    made = texts(1000, 20)
    rows = (
        {"id": n, "text": f"{n} {made[n % 1000]}", "metadata": {"n": n}} for n in range(records)
    )
    for _ in ev.add_many("note", rows):
        pass
    assert ev.process_all().succeeded == records


def _rate(records: int, do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return records / (time.perf_counter() - began)


@contextmanager
def _store(name: str, url: str) -> Iterator[str]:
    """The URL of an empty store."""
    if name == "postgres":
        with database(url) as place:
            yield place
        return
    with TemporaryDirectory(prefix="evervec-bench-") as folder:
        yield f"{name}:///{folder}/store.db"
