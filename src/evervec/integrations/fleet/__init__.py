"""A fleet of workers on a distributed engine, as many as the backlog needs.

`supervisor` replaces workers that died, and adds and removes some with the lag; `ray` runs them as
actors of Ray. Each is an ordinary worker with leases of its own, so a dead one needs no more than
that its leases expire. The folder may open stores; nothing else knows it but the command line.
"""
