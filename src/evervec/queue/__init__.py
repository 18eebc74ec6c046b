"""Jobs: what may become of them, who holds them, and who waits for them.

`transitions` is the whole rule, as pure functions that every store follows; `queue` offers claim, finish,
fail and retry over any store; `ticket_waiter` waits for changes to be in the index. It may touch the store
alone. Workers (`evervec.worker`) are its main users.
"""
