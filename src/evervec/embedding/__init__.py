"""An embedder as all workers of a store share it.

`registry` knows the embedder of each version, with a cache for the vectors of texts embedded
before; `provider` calls it within the limits of `gate` (outages and rate limits) and `budget`
(requests and tokens per minute, cost per day). The folder may touch the store, where the workers'
shared state lives, and the embedder. Adapters for providers are in `evervec.embedders`;
`evervec.worker` and `evervec.search` call this folder.
"""
