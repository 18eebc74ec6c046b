"""All errors that evervec raises, as one class hierarchy.

A message says what is wrong and what to do. Without a message, the class's docstring is used.
"""

from __future__ import annotations

from collections.abc import Sequence


class EvervecError(Exception):
    """Base class of all errors that evervec raises."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or " ".join((type(self).__doc__ or "").split()))


class InvalidArgument(EvervecError, ValueError):
    """An argument has an invalid value."""


class SettingsError(InvalidArgument):
    """A setting is unknown or has an invalid value."""


class InvalidRecord(EvervecError, ValueError):
    """A record was rejected; nothing was written.

    `position` is its index in the input of `add_many` or `enqueue_many`.
    """

    def __init__(self, message: str | None = None, *, position: int | None = None) -> None:
        if position is not None:
            message = f"record at position {position}: {message}"
        super().__init__(message)
        self.position = position


class QuotaExceeded(InvalidRecord):
    """A tenant's quota is used up; the record was not written.

    `refused`: the positions of all records of the same batch that exceed the quota.
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
    """The job's current state does not allow this transition."""


class LeaseLost(EvervecError):
    """The job's token is no longer valid: its lease expired and another worker claimed it, or
    the job was finished, cancelled or replaced. Discard the result."""


class WaitTimeout(EvervecError, TimeoutError):
    """The wait timed out before the record was embedded. Nothing is lost: wait again, or check
    that a worker is running (`with ev.worker():` or `evervec worker`)."""


class DeadlineExceeded(EvervecError):
    """The call exceeded its deadline and was aborted. If it was a write, nothing was written."""


class Cancelled(DeadlineExceeded):
    """The call was aborted because its caller no longer waits for the result."""


class JobFailed(EvervecError):
    """The job is a dead letter. Fix the cause, then call `ev.queue.retry(job_id)`."""


class AccessDenied(EvervecError):
    """The API key is invalid or lacks permission: use another key, or change its role."""


class StoreError(EvervecError):
    """The store could not be opened, read or written."""


class ValueRefused(StoreError):
    """The store's database rejected a value. Only the record with this value is affected."""


class StoreClosed(StoreError):
    """The store is closed: open it again with evervec.open."""


class VersionMismatch(EvervecError):
    """The store's vectors were made with a different model than the one given."""


class IndexMismatch(EvervecError):
    """The given index does not hold the store's vectors."""


class IndexUnavailable(EvervecError):
    """The vector index is unreachable. Writes wait for it; searches use text only."""


class IndexBusy(IndexUnavailable):
    """Another writer is using the vector index. Try again."""


class WrongCollection(IndexUnavailable):
    """A collection of the index cannot hold the vectors of an embedding version.

    `version` is the number of that version; other versions are unaffected.
    """

    def __init__(self, message: str, *, version: int) -> None:
        super().__init__(message)
        self.version = version


class EmbedderError(EvervecError):
    """Base class of the errors by which an embedder tells outages, limits and bad input apart."""

    calls = 0
    tokens = 0
    """spent before the error occurred"""


class ProviderUnavailable(EmbedderError):
    """The embedding provider is unreachable. Jobs wait for it without spending attempts."""


class RateLimited(EmbedderError):
    """The embedding provider's rate limit was reached."""

    def __init__(self, retry_after: float | None = None, message: str | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class InvalidInput(EmbedderError):
    """The embedding provider rejected some of the texts: those at `positions`."""

    def __init__(self, positions: Sequence[int], message: str | None = None) -> None:
        super().__init__(message)
        self.positions = tuple(positions)
