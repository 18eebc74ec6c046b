"""Turns a caller's object into a checked record that the store can save.

`kinds` defines how objects of a type are read, `drafts` checks each part, `frames` reads data
frames, and `writer` saves drafts, many in one transaction. The folder may touch the store and
attached tables, never an index; of embedders it only asks whether there is one. A saved record has
a job: it continues in `evervec.queue` and `evervec.worker`.
"""
