"""A caller's object becomes a checked record that the store can save.

`kinds` says how an object of a type is read, `drafts` checks each part of it, and `writer` saves drafts,
many in one transaction. It may touch the store and attached tables, never an index or an embedder. A saved
record has a job: its way goes on in `evervec.queue` and `evervec.worker`.
"""
