"""What callers may import, and nothing beyond."""

import re
import statistics
import subprocess
import sys
import types
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import evervec

NAMES = {
    "aopen", "AsyncEvervec", "deadline", "DeadlineExceeded",
    "AccessDenied", "Answer", "AuditEntry", "Key", "NewKey", "Token", "AsyncClient", "AsyncEmbedder", "AttachedTable", "Attachment", "Client", "Attempt", "Backfill", "Gate", "Spend", "Chunker", "ChunkVector", "Content", "Embedder", "EmbedderError", "EnqueueResult", "Evervec", "EvervecError", "Explanation", "MatchedWord",
    "FailureGroup", "TimelineEvent", "WorkerState", "JobFilter", "Sentence", "Hit", "Hits", "HistoryPoint", "IndexMismatch", "IndexUnavailable", "InvalidArgument", "InvalidInput", "InvalidRecord",
    "InvalidTransition", "Job", "JobFailed", "Kind", "LeaseLost", "Outcome", "ProcessResult",
    "ProviderUnavailable", "Queue", "RateLimited", "Record", "Reranked", "Reranker", "Rescore", "Settings",
    "SettingsError", "SizeChunker", "ContentChunker", "Measure", "Stats", "Status", "StoreError", "Ticket", "Vectors", "Exported", "Imported", "ImportedVectors", "VerifyReport",
    "Version", "VersionMismatch", "WaitTimeout", "Worker", "open", "Comparison", "Estimate",
    "Migration", "MigrationStatus", "Limits", "QuotaExceeded", "Usage",
}  # fmt: skip


def test_the_exported_names_are_these() -> None:
    assert set(evervec.__all__) == NAMES
    assert len(evervec.__all__) == len(NAMES)
    for name in NAMES:
        assert hasattr(evervec, name)


def test_nothing_else_is_public() -> None:
    for name in NAMES:  # some are imported when they are first asked for
        getattr(evervec, name)
    public = {
        name
        for name, value in vars(evervec).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public == NAMES


def test_dir_lists_the_names_and_nothing_else() -> None:
    assert set(dir(evervec)) == NAMES | {"__version__"}


ERRORS = [
    value
    for name in sorted(NAMES)
    if isinstance(value := getattr(evervec, name), type) and issubclass(value, Exception)
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: e.__name__)
def test_every_error_is_one_of_evervec_and_explains_itself(error: type[Exception]) -> None:
    assert issubclass(error, evervec.EvervecError)
    made = evervec.InvalidInput([1]) if error is evervec.InvalidInput else error()
    assert len(str(made)) > 20
    assert "\n" not in str(made)


DOCUMENTED = {
    evervec.Ticket: """kind id job_id seq accepted is_new""",
    evervec.Job: """job_id tenant kind record_id embedding_version op seq claimed_seq status
        priority attempts max_attempts error token created_at scheduled_for started_at
        completed_at lease_expires_at""",
    evervec.Record: """tenant kind id seq title text metadata weight created_at updated_at
        embedded""",
    evervec.Attempt: """attempt seq worker started_at finished_at outcome error
        chunks_embedded chunks_reused tokens""",
    evervec.Hit: """kind id title text similarity relevance metadata via""",
    evervec.Stats: """pending processing done failed in_flight unique_records
        oldest_pending_seconds average_processing_ms last_processed_at""",
    evervec.VerifyReport: """missing stale orphaned doubled repaired""",
    evervec.ProcessResult: """processed succeeded failed errors""",
    evervec.EnqueueResult: """job_id is_new""",
    evervec.Version: """name kind provider model dimensions state items last_sync_at""",
}


@pytest.mark.parametrize("cls", DOCUMENTED, ids=lambda cls: cls.__name__)
def test_values_are_frozen(cls: type) -> None:
    if not issubclass(cls, tuple):
        assert is_dataclass(cls)
        assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]


@pytest.mark.parametrize("cls", DOCUMENTED, ids=lambda cls: cls.__name__)
def test_values_have_their_documented_fields(cls: type) -> None:
    made: Any = cls
    names = made._fields if issubclass(cls, tuple) else [f.name for f in fields(made)]
    assert set(DOCUMENTED[cls].split()) <= set(names)


def test_importing_needs_no_adapter_and_no_heavy_library() -> None:
    heavy = (
        "evervec.stores.sqlite", "evervec.integrations", "pydantic", "mcp", "langchain",
        "llama_index", "haystack",
    )  # fmt: skip
    code = f"import sys, evervec; print([m for m in sys.modules if m.startswith({heavy!r})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


INTEGRATED = ("langchain_core", "llama_index", "haystack", "sqlalchemy", "alembic", "django",
              "fastapi", "starlette", "confluent_kafka", "nats", "mcp", "mcp_types", "ray")  # fmt: skip


@pytest.mark.parametrize(
    "done",
    ["import evervec", "import evervec; evervec.open('memory:', embedder='hashing').close()",
     "import evervec.cli.app"],
)  # fmt: skip
def test_no_integration_is_imported_before_it_is_used(done: str) -> None:
    code = f"""
import sys
{done}
wanted = {INTEGRATED!r}
print([m for m in sys.modules if m.split(".")[0] in wanted or m.startswith("evervec.integrations")])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_importing_takes_less_than_50_ms_of_a_processor() -> None:
    """The time of the processor, because others use the machine too; the time of an interpreter
    that imports nothing is not counted."""
    code = "import time; began = time.process_time(); import evervec; print(time.process_time() - began)"
    took = []
    for _ in range(5):
        ran = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        took.append(float(ran.stdout))
    assert statistics.median(took) < 0.05, took


def test_the_version_is_a_version_and_the_types_are_announced() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", evervec.__version__)
    assert (Path(evervec.__file__).parent / "py.typed").exists()
