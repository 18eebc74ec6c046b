"""Values that every layer speaks of: jobs, records, points, hits, filters, deadlines and reports.

Nothing here reads or writes anything; it may use `settings`, `errors` and `telemetry` alone. Start with
`jobs` and `records`; what may become of a job is in `evervec.queue.transitions`.
"""
