"""Vector indexes, and the note in the store that says which one is used (`location`).

`base` is the port; `sqlite`, `duckdb` and `pgvector` live in the store's own database, `lancedb` and `qdrant`
apart from it. An adapter may touch its engine alone. Points are written by `evervec.worker.index_writer`.
"""
