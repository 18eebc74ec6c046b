"""An embedder as all workers of a store share it.

`registry` knows the embedder of each version; `provider` calls it within what the others here allow: `gate`
(outages), `pace` (rate limits), `budget` and `spending` (cost), `vector_cache` (texts embedded before). It
may touch the store, where the workers' shared state lives, and the embedder. Adapters for providers are in
`evervec.embedders`; `evervec.worker` and `evervec.search` call this folder.
"""
