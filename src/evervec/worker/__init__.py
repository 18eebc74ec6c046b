"""From a claimed job to points in the index: claim, read, chunk, embed, write.

`pipeline` has the stages, `worker` overlaps them in threads, `index_writer` writes points so that no stale
one can win, and `push` does the same for jobs that come as messages. It may touch store, index, embedders and
attached tables. What is done from time to time beside the jobs is in `evervec.maintenance`.
"""
