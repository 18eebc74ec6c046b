"""An embedder as all workers of a store share it.

`registry` knows the embedder of each version; `provider` calls it within the limits of the other
modules: `gate` (outages and rate limits), `pace` (text per call), `budget` (requests and tokens per
minute), `spending` (cost). `vector_cache` has the vectors of texts embedded before. The folder may
touch the store, where the workers' shared state lives, and the embedder. Adapters for providers are
in `evervec.embedders`; `evervec.worker` and `evervec.search` call this folder.
"""
