"""Moves records with their vectors between stores, as Parquet files.

`export` reads store and index; `loader` saves a file's records as `add` does, so that workers write
their vectors. `pending` exports texts that wait, and writes their vectors once they were embedded
elsewhere. `columns` is the form of a file. The folder may touch the store, the index and the
models that this process knows, never a provider.
"""
