"""Changes the embedding model without downtime.

`migration` is the caller's interface; `lifecycle` begins, fills, switches and retires versions;
`backfill` enqueues records that lack current vectors; `estimate` and `comparison` predict cost and
changes. The folder may touch the store, the index and embedders. The records themselves are
embedded by `evervec.worker`.
"""
