"""An explorer of schedules: evervec's own code, moved step by step, without threads or time.

Actors are greenlets that hand over before each transaction of the store and each call to index
and provider. A scheduler decides who goes on and which step meets a fault; a judge that knows only
what the application wrote says whether a promise was broken. `docs/exploring.md` tells more.
"""
