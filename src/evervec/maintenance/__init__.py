"""Periodic tasks, and what operators see of them.

`housekeeping` takes back jobs of lost workers, enqueues backfills, purges old rows and maintains the
index; `alerts` reports a problem once for all processes; `metrics` exposes a store to Prometheus.
The folder may touch the store, the index and the queue. Workers call it between jobs.
"""
