"""Vector indexes. `base` is the contract."""
