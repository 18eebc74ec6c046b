"""What SQL stores share: the decisions, and the calls that differ only in their queries.

An engine provides connections, queries with the same names, and the parts that it does differently.
`store` composes the parts, one module each, with the queries in a `.sql` file by subject; the rules of
jobs are those of `evervec.queue.transitions`.
"""
