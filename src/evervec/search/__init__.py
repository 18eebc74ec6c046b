"""From a query to hits.

`search` asks the index and the full text of the store, `ranking` makes one order of both, and `cache` keeps
what searches read as long as nothing was written. It reads store and index, and writes nothing. How
vectors are found is the index's part: see `evervec.indexes`.
"""
