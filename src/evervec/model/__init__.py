"""Values that every layer uses: jobs, records, points, hits, filters, deadlines and reports.

Nothing here reads or writes anything; it may use only `settings`, `errors`, `telemetry` and `runtime`. Start
with `jobs` and `records`; a job's transitions are in `evervec.queue.transitions`.
"""
