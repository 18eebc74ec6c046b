"""Takes a claimed job to points in the index: claim, read, chunk, embed, write.

`pipeline` has the stages, `worker` overlaps them in threads, `index_writer` writes points so that a
stale write never replaces a newer one, and `push` processes jobs that arrive as messages. The
folder may touch the store, the index, embedders and attached tables. Periodic tasks beside the jobs
are in `evervec.maintenance`.
"""
