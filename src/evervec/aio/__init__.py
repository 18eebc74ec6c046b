"""`evervec.aopen`: the library for asyncio, its methods awaited.

It calls the synchronous library in threads of its own, so it may use everything below; nothing of the
event loop reaches the layers under it. `facade` is the way in; `runner` decides which thread does what.
"""

from evervec.aio.facade import AsyncEvervec, aopen

__all__ = ["AsyncEvervec", "aopen"]
