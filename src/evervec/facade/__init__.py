"""The front door: `Evervec`, with every method of an open store.

It may use everything below, and decides nothing itself: `parts` puts the parts together, `records` has the
methods for records, `evervec` those for operating the store. `opening` creates it.
"""

from evervec.facade.evervec import Evervec

__all__ = ["Evervec"]
