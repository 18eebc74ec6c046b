"""What is done from time to time, and what operators are told.

`housekeeping` takes back jobs of lost workers, purges old rows and tends the index; `alerts` reports a
problem once for all processes; `metrics` shows a store in numbers. It may touch store, index and the queue.
Workers call it between jobs.
"""
