"""How evervec waits, retries, runs threads and makes HTTP requests.

`http`, `backoff` (with the breaker) and `threads` each exist once, for all other folders. They use nothing
else in evervec.
"""
