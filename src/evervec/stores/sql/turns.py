"""Tenants take turns: whose jobs a claim takes, how many of each, and in which order.

A claim goes round the tenants that have due jobs, in the order of their names, and begins behind
the one that was served last. Each gets a share of the claim by its weight; what one does not need
goes to the others. Priorities order the jobs within a tenant. So a tenant with a million jobs
delays another's single one by about one claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, takewhile, zip_longest
from typing import Any, TypeVar

PROMOTED_AT_ONCE = 10_000
"""jobs that were for later and are due now, at most, that one claim makes ready"""

JobRow = tuple[Any, ...]
T = TypeVar("T")


class Turns:
    """Where the round of this process stands."""

    def __init__(self) -> None:
        self.after = ""
        """the tenant behind which the next claim begins"""

    def tenants(self, behind: Callable[[str], Iterable[str]], limit: int) -> list[str]:
        """The tenants of the next claim, at most `limit`; `behind`: those behind a name that have
        due jobs, in order, as they are asked for."""
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
        """The next claim begins behind the last of them; or, when no tenant is left out, behind
        the first, so that each comes first in its turn."""
        if tenants:
            self.after = tenants[-1] if len(tenants) == limit else tenants[0]


def share_out(
    tenants: Iterable[str],
    weights: Mapping[str, int],
    limit: int,
    first_of: Callable[[str, int], list[T]],
) -> list[list[T]]:
    """Due jobs of each tenant, `limit` in all; `first_of` gives the first so many of one."""
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


def by_tenant(rows: Iterable[JobRow], tenant: int) -> list[list[JobRow]]:
    """Rows in groups; `tenant`: the column that names it."""
    groups: dict[str, list[JobRow]] = {}
    for row in rows:
        groups.setdefault(row[tenant], []).append(row)
    return list(groups.values())


def behind(names: list[str], after: str) -> Iterator[str]:
    """Those of sorted names that come behind another."""
    return (name for name in names if name > after)
