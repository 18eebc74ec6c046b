"""Evervec keeps a vector index true to your data.

Write records, and they are embedded in the background and searchable: through
crashes, outages, edits and deletes, with nothing lost, doubled or stale.

The names below are loaded when they are first used, so that importing costs little.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from evervec.aio import AsyncEvervec as AsyncEvervec
    from evervec.aio import aopen as aopen
    from evervec.chunking import Chunker as Chunker
    from evervec.chunking import ContentChunker as ContentChunker
    from evervec.chunking import Measure as Measure
    from evervec.chunking import SizeChunker as SizeChunker
    from evervec.client import AsyncClient as AsyncClient
    from evervec.client import Client as Client
    from evervec.embedders.base import Answer as Answer
    from evervec.embedders.base import AsyncEmbedder as AsyncEmbedder
    from evervec.embedders.base import Embedder as Embedder
    from evervec.errors import AccessDenied as AccessDenied
    from evervec.errors import DeadlineExceeded as DeadlineExceeded
    from evervec.errors import EmbedderError as EmbedderError
    from evervec.errors import EvervecError as EvervecError
    from evervec.errors import IndexMismatch as IndexMismatch
    from evervec.errors import IndexUnavailable as IndexUnavailable
    from evervec.errors import InvalidArgument as InvalidArgument
    from evervec.errors import InvalidInput as InvalidInput
    from evervec.errors import InvalidRecord as InvalidRecord
    from evervec.errors import InvalidTransition as InvalidTransition
    from evervec.errors import JobFailed as JobFailed
    from evervec.errors import LeaseLost as LeaseLost
    from evervec.errors import ProviderUnavailable as ProviderUnavailable
    from evervec.errors import QuotaExceeded as QuotaExceeded
    from evervec.errors import RateLimited as RateLimited
    from evervec.errors import SettingsError as SettingsError
    from evervec.errors import StoreError as StoreError
    from evervec.errors import VersionMismatch as VersionMismatch
    from evervec.errors import WaitTimeout as WaitTimeout
    from evervec.facade import Evervec as Evervec
    from evervec.model.access import AuditEntry as AuditEntry
    from evervec.model.access import Key as Key
    from evervec.model.access import NewKey as NewKey
    from evervec.model.access import Token as Token
    from evervec.model.deadlines import deadline as deadline
    from evervec.model.explanations import Explanation as Explanation
    from evervec.model.explanations import MatchedWord as MatchedWord
    from evervec.model.explanations import Reranked as Reranked
    from evervec.model.failures import FailureGroup as FailureGroup
    from evervec.model.findings import VerifyReport as VerifyReport
    from evervec.model.history import HistoryPoint as HistoryPoint
    from evervec.model.job_filters import JobFilter as JobFilter
    from evervec.model.jobs import Attempt as Attempt
    from evervec.model.jobs import EnqueueResult as EnqueueResult
    from evervec.model.jobs import Job as Job
    from evervec.model.jobs import Outcome as Outcome
    from evervec.model.jobs import Status as Status
    from evervec.model.jobs import Ticket as Ticket
    from evervec.model.jobs import TimelineEvent as TimelineEvent
    from evervec.model.ranking import Rescore as Rescore
    from evervec.model.records import ChunkVector as ChunkVector
    from evervec.model.records import Content as Content
    from evervec.model.records import Hit as Hit
    from evervec.model.records import Hits as Hits
    from evervec.model.records import Record as Record
    from evervec.model.records import Vectors as Vectors
    from evervec.model.records import Version as Version
    from evervec.model.reports import Backfill as Backfill
    from evervec.model.reports import Comparison as Comparison
    from evervec.model.reports import Estimate as Estimate
    from evervec.model.reports import Exported as Exported
    from evervec.model.reports import Gate as Gate
    from evervec.model.reports import Imported as Imported
    from evervec.model.reports import ImportedVectors as ImportedVectors
    from evervec.model.reports import MigrationStatus as MigrationStatus
    from evervec.model.reports import ProcessResult as ProcessResult
    from evervec.model.reports import Sentence as Sentence
    from evervec.model.reports import Stats as Stats
    from evervec.model.reports import WorkerState as WorkerState
    from evervec.model.usage import Limits as Limits
    from evervec.model.usage import Spend as Spend
    from evervec.model.usage import Usage as Usage
    from evervec.opening import open as open
    from evervec.queue.queue import Queue as Queue
    from evervec.records.kinds import Kind as Kind
    from evervec.rerankers.base import Reranker as Reranker
    from evervec.settings import Settings as Settings
    from evervec.tables.base import AttachedTable as AttachedTable
    from evervec.tables.base import Attachment as Attachment
    from evervec.versions.migration import Migration as Migration
    from evervec.worker.worker import Worker as Worker

__version__ = "0.1.0"

_HOMES = {
    "aio": "AsyncEvervec aopen",
    "chunking": "Chunker ContentChunker Measure SizeChunker",
    "client": "AsyncClient Client",
    "embedders.base": "Answer AsyncEmbedder Embedder",
    "errors": "AccessDenied DeadlineExceeded EmbedderError EvervecError IndexMismatch "
    "IndexUnavailable InvalidArgument InvalidInput InvalidRecord InvalidTransition JobFailed "
    "LeaseLost ProviderUnavailable QuotaExceeded RateLimited SettingsError StoreError "
    "VersionMismatch WaitTimeout",
    "facade": "Evervec",
    "model.access": "AuditEntry Key NewKey Token",
    "model.deadlines": "deadline",
    "model.explanations": "Explanation MatchedWord Reranked",
    "model.failures": "FailureGroup",
    "model.findings": "VerifyReport",
    "model.history": "HistoryPoint",
    "model.job_filters": "JobFilter",
    "model.jobs": "Attempt EnqueueResult Job Outcome Status Ticket TimelineEvent",
    "model.ranking": "Rescore",
    "model.records": "ChunkVector Content Hit Hits Record Vectors Version",
    "model.reports": "Backfill Comparison Estimate Exported Gate Imported ImportedVectors "
    "MigrationStatus ProcessResult Sentence Stats WorkerState",
    "model.usage": "Limits Spend Usage",
    "opening": "open",
    "queue.queue": "Queue",
    "records.kinds": "Kind",
    "rerankers.base": "Reranker",
    "settings": "Settings",
    "tables.base": "AttachedTable Attachment",
    "versions.migration": "Migration",
    "worker.worker": "Worker",
}
_HOME = {name: f"evervec.{home}" for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> _typing.Any:
    if name not in _HOME:
        raise AttributeError(f"module 'evervec' has no attribute {name!r}")
    value = globals()[name] = getattr(_importlib.import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
