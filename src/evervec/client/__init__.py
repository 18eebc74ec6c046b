"""A client of the HTTP service: `evervec.Client(url, key)`."""

from evervec.client.client import Client

__all__ = ["Client"]
