"""Planted defects, and who finds them: `python -m mutants`."""
