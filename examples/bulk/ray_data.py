"""Ray Data: one copy of the model on each GPU. `python ray_data.py pending.parquet vectors/ MODEL`"""

import sys
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
import ray


class Embed:
    def __init__(self, model: str) -> None:
        if model == "hashing":  # to try it without a model
            from evervec.embedders.hashing import HashingEmbedder

            self.embedder: Any = HashingEmbedder()
        else:
            from evervec.embedders.st import StEmbedder

            self.embedder = StEmbedder(model)

    def __call__(self, batch: Any) -> Any:
        texts = batch.column("texts").to_pylist()
        rows = self.embedder.embed(list(chain.from_iterable(texts)))
        ends = accumulate(map(len, texts))
        made = [rows[end - len(some) : end].tolist() for some, end in zip(texts, ends, strict=True)]
        column = pa.array(made, pa.list_(pa.list_(pa.float32())))
        return batch.drop_columns(["texts"]).append_column("vectors", column)


def main(source: str, target: str, model: str) -> None:
    gpus = int(ray.available_resources().get("GPU", 0))
    ray.data.read_parquet(source).map_batches(
        Embed,
        fn_constructor_args=(model,),
        batch_size=2048,
        batch_format="pyarrow",  # others cannot hold lists of bytes
        num_gpus=1 if gpus else 0,
        compute=ray.data.ActorPoolStrategy(size=max(1, gpus)),
    ).write_parquet(target)


if __name__ == "__main__":
    ray.init(ignore_reinit_error=True)
    main(*sys.argv[1:])
