"""Tenants take turns: whose jobs a claim takes, how many of each, and in which order.

A claim visits the tenants that have due jobs round-robin, in the order of their names, and starts
after the tenant that was served last. Each gets a share of the claim by its weight; the unused part
of a share goes to the others. Priorities order the jobs within a tenant. So a tenant with a million
jobs delays another tenant's single job by about one claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, takewhile, zip_longest
from typing import TypeVar

from evervec.model.jobs import Job

PROMOTED_AT_ONCE = 10_000
"""how many delayed jobs that have become due one claim makes claimable, at most"""

T = TypeVar("T")


class Turns:
    """The position of this process in the round of tenants."""

    def __init__(self) -> None:
        self.after = ""
        """the tenant after which the next claim starts"""

    def tenants(self, behind: Callable[[str], Iterable[str]], limit: int) -> list[str]:
        """The tenants of the next claim, at most `limit`. `behind` gives the tenants after a name
        that have due jobs, lazily and in order."""
        after = self.after
        once_more = takewhile(lambda name: name <= after, behind("") if after else ())
        found = []
        for name in chain(behind(after), once_more):
            found.append(name)
            if len(found) == limit:
                break
        self.served(found, limit)
        return found

    def served(self, tenants: list[str], limit: int) -> None:
        """Start the next claim after the last of them; or, if no tenant was left out, after the
        first, so that each tenant is first in turn."""
        if tenants:
            self.after = tenants[-1] if len(tenants) == limit else tenants[0]


def share_out(
    tenants: Iterable[str],
    weights: Mapping[str, int],
    limit: int,
    first_of: Callable[[str, int], list[T]],
) -> list[list[T]]:
    """Due jobs of each tenant, `limit` in all; `first_of` gives the first jobs of a tenant, up to
    a count."""
    given: dict[str, list[T]] = {}
    hungry = {tenant: weights.get(tenant, 1) for tenant in tenants}
    left = limit
    while hungry and left > 0:
        room, total = left, sum(hungry.values())
        for tenant, weight in list(hungry.items()):
            had = len(given.get(tenant, ()))
            wanted = had + min(left, max(weight, room * weight // total))
            given[tenant] = first_of(tenant, wanted)
            left -= len(given[tenant]) - had
            if len(given[tenant]) < wanted:
                del hungry[tenant]
            if left <= 0:
                break
    return list(given.values())


def in_turns(groups: list[list[T]]) -> list[T]:
    """The first of each tenant, then the second of each, and so on."""
    if len(groups) == 1:
        return groups[0]
    return [row for rows in zip_longest(*groups) for row in rows if row is not None]


def by_tenant(jobs: Iterable[Job]) -> list[list[Job]]:
    """Jobs grouped by tenant."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.tenant, []).append(job)
    return list(groups.values())


def behind(names: list[str], after: str) -> Iterator[str]:
    """The names, of a sorted list, that come after another."""
    return (name for name in names if name > after)
