"""The HTTP service: the library for several tenants, with API keys and limits.

The path of a request: `protocol` (its connection) → `requests` (id, body size) → `deadlines` →
`access` (key, rate limit) → `admission` (how many at once) → a route in `routes/` → `service`,
which runs blocking calls in threads and groups calls of several requests.
"""
