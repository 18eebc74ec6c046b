"""Embedders turn texts into vectors.

`base` is the port; the other modules call a provider or run a model in this process. An embedder
knows nothing of stores or jobs. How all workers share one is in `evervec.embedding`.
"""
