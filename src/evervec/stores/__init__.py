"""Stores: where records, jobs and the ledger live. `base` is the contract."""
