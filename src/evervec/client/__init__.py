"""The library's methods over HTTP: `evervec.Client(url, key)`."""

from evervec.client.client import Client

__all__ = ["Client"]
