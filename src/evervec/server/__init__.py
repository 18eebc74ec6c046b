"""The service: the library over HTTP, for tenants with keys, within limits.

The way of a request: `requests` (its id, its size) → `access` (whose it is, how often) →
one of the routes in `routes/` → `service`, which does it in threads, together with others.
"""
