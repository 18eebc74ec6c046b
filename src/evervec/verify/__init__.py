"""The index against the records."""
