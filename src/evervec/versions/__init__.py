"""A change of the embedding model without downtime.

`migration` is what a caller holds; `lifecycle` begins, switches, keeps in step and retires versions; `backfill`
enqueues what lacks current vectors; `estimate` and `comparison` say beforehand what it will cost and change.
It may touch store, index and embedders. The records themselves are embedded by `evervec.worker`.
"""
