"""Evervec keeps a vector index true to your data.

Write records, and they are embedded in the background and searchable: through
crashes, outages, edits and deletes, with nothing lost, doubled or stale.
"""

from evervec.chunking import Chunker, SizeChunker
from evervec.embedders.base import Embedder
from evervec.errors import (
    EmbedderError,
    EvervecError,
    IndexUnavailable,
    InvalidArgument,
    InvalidInput,
    InvalidRecord,
    InvalidTransition,
    JobFailed,
    LeaseLost,
    ProviderUnavailable,
    RateLimited,
    SettingsError,
    StoreError,
    VersionMismatch,
    WaitTimeout,
)
from evervec.facade import Evervec, open
from evervec.kinds import Kind, Rescore
from evervec.model import (
    Attempt,
    EnqueueResult,
    Hit,
    Hits,
    Job,
    Outcome,
    ProcessResult,
    Record,
    Stats,
    Status,
    Ticket,
    VerifyReport,
    Version,
)
from evervec.queue import Queue
from evervec.settings import Settings
from evervec.worker import Worker

__version__ = "0.1.0"

__all__ = [
    "Attempt",
    "Chunker",
    "Embedder",
    "EmbedderError",
    "EnqueueResult",
    "Evervec",
    "EvervecError",
    "Hit",
    "Hits",
    "IndexUnavailable",
    "InvalidArgument",
    "InvalidInput",
    "InvalidRecord",
    "InvalidTransition",
    "Job",
    "JobFailed",
    "Kind",
    "LeaseLost",
    "Outcome",
    "ProcessResult",
    "ProviderUnavailable",
    "Queue",
    "RateLimited",
    "Record",
    "Rescore",
    "Settings",
    "SettingsError",
    "SizeChunker",
    "Stats",
    "Status",
    "StoreError",
    "Ticket",
    "VerifyReport",
    "Version",
    "VersionMismatch",
    "WaitTimeout",
    "Worker",
    "open",
]
