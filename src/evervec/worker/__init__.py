"""Takes a claimed job to points in the index: claim, read, chunk, embed, write.

`pipeline` has the stages: `served` says whose jobs it claims, `reader` reads records, `batch` takes
them through the stages, and `index_writer` writes points so that a stale write never replaces a
newer one. `worker` overlaps the stages in threads (`claims`, `threads`), and `push` processes jobs
that arrive as messages. The folder may touch the store, the index, embedders and attached tables.
Periodic tasks beside the jobs are in `evervec.maintenance`.
"""
