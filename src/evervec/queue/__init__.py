"""Jobs: their transitions, their leases, and waiting for them.

`transitions` has the complete rules, as pure functions that every store follows; `queue` offers
claim, finish, fail and retry over any store; `ticket_waiter` waits until changes are in the index.
The folder may touch the store, and reads the embedder registry for its counts. Workers
(`evervec.worker`) are its main users.
"""
