"""What SQL stores share: the decisions, and the calls that differ only in their queries.

An engine provides connections, queries with the same names, and the parts that it does differently.
"""
