"""Stores: where records, jobs and the ledger of indexed chunks live.

`base` is the port; `sqlite`, `postgres` and `duckdb` are its adapters, and `sql` is what they share. An adapter
may touch its database alone, and follows the rules of `evervec.queue.transitions`. Only `evervec.opening` knows
the adapters by name.
"""
