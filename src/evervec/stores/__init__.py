"""Stores: databases that hold records, jobs and the ledger of indexed chunks.

`base` is the port; `sqlite`, `postgres` and `duckdb` are its adapters, and `sql` holds the code
that they share. An adapter accesses only its own database and follows the rules of
`evervec.queue.transitions`. Only `evervec.opening` knows the adapters by name, and the indexes and
tables that use their connections.
"""
