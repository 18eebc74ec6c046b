"""Every error that evervec raises on purpose, as one tree.

A message says what is wrong and what to do about it; the class's docstring is
the message where none is given.
"""

from __future__ import annotations

from collections.abc import Sequence


class EvervecError(Exception):
    """Something went wrong in evervec."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or " ".join((type(self).__doc__ or "").split()))


class InvalidArgument(EvervecError, ValueError):
    """An argument has a value that evervec cannot work with."""


class SettingsError(InvalidArgument):
    """A setting is unknown or has a value that cannot be used."""


class InvalidRecord(EvervecError, ValueError):
    """A record was refused; nothing of it was written.

    `position` is its place in the input of `add_many` or `enqueue_many`.
    """

    def __init__(self, message: str | None = None, *, position: int | None = None) -> None:
        if position is not None:
            message = f"record at position {position}: {message}"
        super().__init__(message)
        self.position = position


class QuotaExceeded(InvalidRecord):
    """A tenant has as much as it may have; nothing of the record was written.

    `refused`: of the records that were saved together, the places of all that were too much.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        position: int | None = None,
        refused: Sequence[int] = (),
    ) -> None:
        super().__init__(message, position=position)
        self.refused = tuple(refused)


class InvalidTransition(EvervecError):
    """A job cannot go from its state to the wanted one."""


class LeaseLost(EvervecError):
    """The job's token is no longer good: its lease ran out and was taken over, or the job
    was finished, cancelled or replaced. Drop the result; whoever holds the job now does it."""


class WaitTimeout(EvervecError, TimeoutError):
    """The wait ran out before the record was embedded. Nothing is lost: wait again, or see
    that a worker runs (`with ev.worker():` or `evervec worker`)."""


class DeadlineExceeded(EvervecError):
    """The call did not end before its deadline, and was broken off. If it was a write, nothing
    was written."""


class Cancelled(DeadlineExceeded):
    """The call was broken off because nobody waits for its answer any more."""


class JobFailed(EvervecError):
    """The job is a dead letter. Mend the cause, then `ev.queue.retry(job_id)`."""


class AccessDenied(EvervecError):
    """The key opens nothing, or may not do this: use another, or have its role changed."""


class StoreError(EvervecError):
    """The store could not be opened, read or written."""


class ValueRefused(StoreError):
    """The store's database refused a value. Only the record that has it is concerned."""


class StoreClosed(StoreError):
    """The store is closed: open it again with evervec.open."""


class VersionMismatch(EvervecError):
    """The store's vectors were made by another model than the one given."""


class IndexMismatch(EvervecError):
    """The index given does not hold the store's vectors."""


class IndexUnavailable(EvervecError):
    """The vector index cannot be reached. Writes wait for it; searches answer from text."""


class IndexBusy(IndexUnavailable):
    """Another writer is using the vector index. Try again."""


class WrongCollection(IndexUnavailable):
    """The index has a collection that cannot hold the vectors of an embedding version.

    `version` is the number of that version; other versions can be written.
    """

    def __init__(self, message: str, *, version: int) -> None:
        super().__init__(message)
        self.version = version


class EmbedderError(EvervecError):
    """Base of what an embedder may raise to say whose fault a failure is."""

    calls = 0
    tokens = 0
    """what was spent before it was met"""


class ProviderUnavailable(EmbedderError):
    """The embedding provider cannot be reached. Jobs wait for it and spend no attempts."""


class RateLimited(EmbedderError):
    """The embedding provider asked for a pause."""

    def __init__(self, retry_after: float | None = None, message: str | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InvalidInput(EmbedderError):
    """The embedding provider refuses some of the texts; `positions` says which."""

    def __init__(self, positions: Sequence[int], message: str | None = None) -> None:
        super().__init__(message)
        self.positions = tuple(positions)
