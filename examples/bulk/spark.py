"""Spark: the model is loaded once by each task. `spark-submit spark.py pending.parquet vectors/ MODEL`"""

import sys
from collections.abc import Iterator
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, FloatType, StructField, StructType


def main(source: str, target: str, model: str) -> None:
    spark = SparkSession.builder.appName("evervec").getOrCreate()
    frame = spark.read.parquet(source)
    vectors = StructField("vectors", ArrayType(ArrayType(FloatType())))
    schema = StructType([f for f in frame.schema if f.name != "texts"] + [vectors])

    def embed(batches: Iterator[Any]) -> Iterator[Any]:
        embedder: Any
        if model == "hashing":  # to try it without a model
            from evervec.embedders.hashing import HashingEmbedder

            embedder = HashingEmbedder()
        else:
            from evervec.embedders.st import StEmbedder

            embedder = StEmbedder(model)
        for batch in batches:
            texts = batch.column("texts").to_pylist()
            rows = embedder.embed(list(chain.from_iterable(texts)))
            ends = accumulate(map(len, texts))
            made = [
                rows[end - len(some) : end].tolist() for some, end in zip(texts, ends, strict=True)
            ]
            column = pa.array(made, pa.list_(pa.list_(pa.float32())))
            yield batch.drop_columns(["texts"]).append_column("vectors", column)

    frame.mapInArrow(embed, schema).write.parquet(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
