"""Turns a query into hits.

`search` queries the index and the store's full text and merges both into one order, and
`cache` keeps what searches read until the next write. The folder reads store and index, and writes
nothing. How vectors are found is up to the index: see `evervec.indexes`.
"""
