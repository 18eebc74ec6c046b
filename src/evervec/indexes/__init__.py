"""Vector indexes, and the note in the store that says which one is used (`location`).

`base` is the port; `sqlite`, `duckdb` and `pgvector` are in the store's own database, `lancedb` and
`qdrant` outside it. An adapter may touch its engine and, outside the store, notes and locks of the
store. Points are written by `evervec.worker.index_writer`.
"""
