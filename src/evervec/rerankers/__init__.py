"""Models that judge how well a text answers a query.

`base` is the port, with what a valid answer is; the adapters call an endpoint over HTTP (`endpoint`)
or run a cross-encoder on this machine (`cross_encoder`). `search.reranker` calls them within limits.
"""
