"""How evervec waits, retries, runs threads and makes HTTP requests.

`http`, `backoff` (with the breaker), `threads`, and for event loops `fair_pool`, `batcher` and `loops`
each exist once, for all other folders. They use nothing else in evervec.
"""
