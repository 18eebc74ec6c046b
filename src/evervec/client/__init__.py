"""Clients of the HTTP service: `evervec.Client(url, key)` and `evervec.AsyncClient(url, key)`.

What they say to the service is written once, as calls that yield their requests (`calls`,
`operations`, over the rules in `connection`); `sync` and `awaited` send them.
"""

from evervec.client.awaited import AsyncClient
from evervec.client.sync import Client

__all__ = ["AsyncClient", "Client"]
