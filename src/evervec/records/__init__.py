"""A caller's object becomes a checked record."""
