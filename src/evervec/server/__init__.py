"""The HTTP service: the library for several tenants, with API keys and limits.

The path of a request: `requests` (id, body size) → `access` (key, rate limit) → a route in
`routes/` → `service`, which runs blocking calls in threads and groups calls of several requests.
"""
