"""Daft: a class with the model, one for each GPU. `python daft_frame.py pending.parquet vectors/ MODEL`"""

import sys
from itertools import accumulate, chain
from typing import Any

import daft
from daft import DataType

Vectors = DataType.list(DataType.list(DataType.float32()))


class Embed:
    def __init__(self, model: str) -> None:
        if model == "hashing":  # to try it without a model and a GPU
            from evervec.embedders.hashing import HashingEmbedder

            self.embedder: Any = HashingEmbedder()
        else:
            from evervec.embedders.st import StEmbedder

            self.embedder = StEmbedder(model)

    @daft.method.batch(return_dtype=Vectors, batch_size=2048)  # type: ignore[untyped-decorator]
    def vectors(self, texts: Any) -> Any:
        given = texts.to_pylist()
        rows = self.embedder.embed(list(chain.from_iterable(given)))
        ends = accumulate(map(len, given))
        return [rows[end - len(some) : end].tolist() for some, end in zip(given, ends, strict=True)]


def main(source: str, target: str, model: str) -> None:
    gpus = 0 if model == "hashing" else 1
    embed: Any = daft.cls(Embed, gpus=gpus, max_concurrency=1)(model)
    frame = daft.read_parquet(source)
    frame = frame.with_column("vectors", embed.vectors(frame["texts"])).exclude("texts")
    frame.write_parquet(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
