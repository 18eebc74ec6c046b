"""All settings: name, default, meaning, and environment variable (`EVERVEC_…`).

An argument of `open` overrides the environment variable, which overrides the default.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from evervec.runtime.setting import setting, setting_values
from evervec.telemetry.visible import without_secrets


@dataclass(frozen=True, repr=False)
class Settings:
    """Settings of this process; each field is an argument of `evervec.open`."""

    max_attempts: int = setting(10, "attempts before a job becomes a dead letter", least=1)
    backoff_seconds: float = setting(
        1.0, "wait after the first failure; doubles with each further one", least=0
    )
    backoff_cap_seconds: float = setting(300.0, "longest wait between attempts", least=0)
    backoff_jitter: float = setting(
        0.2, "random variation of a wait, up or down, as a fraction of it", least=0, most=1
    )
    batch_size: int = setting(
        256,
        "jobs claimed at once; more for a model in this process that embeds more at once, as on a "
        "GPU, unless this is below the default",
        least=1,
    )
    concurrency: int = setting(3, "provider calls in flight", least=1)
    poll_seconds: float = setting(
        0.0,
        "how often a worker polls for changes by other processes; "
        "0: 0.1 s on SQLite and DuckDB, 1 s on PostgreSQL, which also notifies",
        least=0,
    )
    lease_seconds: float = setting(60.0, "how long a claim holds without renewal", least=0.05)
    drain_seconds: float = setting(
        30.0, "how long a stopping worker may take to finish its claimed jobs", least=0
    )
    wait_seconds: float = setting(30.0, "default timeout of `wait`", least=0)
    busy_seconds: float = setting(
        5.0, "how long to wait for a lock held by another process or transaction", least=0
    )
    keep_done_days: float = setting(
        7.0,
        "how long done jobs, attempts and tombstones are kept; those of a followed stream stay",
        least=0,
    )
    keep_dead_days: float = setting(7.0, "how long dead letters are kept", least=0)
    housekeeping_seconds: float = setting(60.0, "how often a worker runs housekeeping", least=0.01)
    alert_failed: int = setting(10, "number of failed jobs that raises an alert", least=1)
    alert_lag_seconds: float = setting(
        600.0, "how long due work (not backfill) may wait before an alert; 0: no alert", least=0
    )
    alert_away_seconds: float = setting(
        60.0, "how long provider or index may be unavailable before an alert; 0: no alert", least=0
    )
    alert_transaction_seconds: float = setting(
        600.0,
        "how long a transaction may block vacuum in PostgreSQL before an alert; 0: no alert",
        least=0,
    )
    alert_url: str = setting(
        "", "webhook that alerts are posted to as JSON, when raised and when cleared", secret=True
    )
    openai_url: str = setting(
        "", "URL of an OpenAI-compatible server; default $OPENAI_BASE_URL, else OpenAI's own"
    )
    openai_key: str = setting("", "API key of that server; default $OPENAI_API_KEY", secret=True)
    ollama_url: str = setting(
        "", "URL of Ollama; default $OLLAMA_HOST, else port 11434 of this machine"
    )
    ollama_chars: int = setting(
        2000, "characters of a text sent to Ollama at most, cut after the last whole word", least=16
    )
    dimensions: int = setting(
        0, "dimensions of a vector, for OpenAI, Ollama and `st`; 0: the model's own", least=0
    )
    st_device: str = setting(
        "", "devices of `st` models, such as cuda:0,cuda:1, mps or cpu; empty: all GPUs, else cpu"
    )
    st_precision: str = setting(
        "auto", "precision of `st` models: single, half, bfloat16; auto: half on GPUs"
    )
    st_batch_tokens: int = setting(
        0, "tokens that an `st` model runs at once; 0: 32768 on GPUs, else 1024", least=0
    )
    st_text_prompt: str = setting("", "prompt before each text of an `st` model; empty: its own")
    st_query_prompt: str = setting("", "prompt before each query of an `st` model; empty: its own")
    st_remote_code: bool = setting(False, "run the Python code that comes with an `st` model")
    provider_batch: int = setting(
        0, "texts in one call to OpenAI or Ollama; 0: as many as it accepts", least=0
    )
    provider_seconds: float = setting(
        60.0, "timeout of a call to OpenAI or Ollama that embeds a batch", least=0.01
    )
    query_seconds: float = setting(
        10.0, "timeout of a call to OpenAI or Ollama that embeds a query", least=0.01
    )
    requests_per_minute: int = setting(
        0, "calls to the provider per minute by all workers together; 0: no limit", least=0
    )
    tokens_per_minute: int = setting(
        0, "tokens sent to the provider per minute by all workers together; 0: no limit", least=0
    )
    price_per_million: float = setting(0.0, "price of a million tokens, in your currency", least=0)
    daily_tokens: int = setting(
        0, "tokens per day (UTC) after which embedding pauses; 0: no limit", least=0
    )
    daily_money: float = setting(
        0.0, "cost per day (UTC) after which embedding pauses; 0: no limit", least=0
    )
    tenant_kinds: int = setting(
        200, "kinds that a tenant may have records of; 0: no limit", least=0
    )
    tenant_records: int = setting(0, "records that a tenant may have; 0: no limit", least=0)
    tenant_bytes: int = setting(
        0, "bytes of a tenant's titles, texts and metadata; 0: no limit", least=0
    )
    tenant_chunks: int = setting(0, "chunks of a tenant in the index; 0: no limit", least=0)
    tenant_tokens: int = setting(
        0,
        "tokens per day (UTC) after which a tenant's jobs wait and it searches by text; 0: no limit",
        least=0,
    )
    tenant_money: float = setting(
        0.0,
        "cost per day (UTC) after which a tenant's jobs wait and it searches by text; 0: no limit",
        least=0,
    )
    backfill_priority: int = setting(
        -100, "priority of the jobs that a backfill enqueues", least=-1000, most=1000
    )
    vector_cache_mb: int = setting(
        0, "MB of vectors cached for texts that several records share; 0: no cache", least=0
    )
    chunk_tokens: int = setting(
        400, "tokens of a chunk, at most; fewer if the model accepts fewer", least=4
    )
    text_chars: int = setting(16_000_000, "characters of a record's text, at most", least=1)
    hit_data_chars: int = setting(
        32_000_000, "characters of the typed objects in the hits of a search, at most", least=1
    )
    hit_chars: int = setting(
        32_000_000, "characters of all parts of the hits of a search, at most", least=1
    )
    title_chars: int = setting(2048, "characters of a record's title, at most", least=1)
    metadata_bytes: int = setting(
        65_536, "bytes of a record's metadata as JSON, at most", least=2, most=16_000_000
    )
    metadata_values: int = setting(
        2000, "values in a record's metadata, including nested ones, at most", least=1
    )
    metadata_depth: int = setting(
        32, "how deep a record's metadata may be nested", least=1, most=100
    )
    filter_conditions: int = setting(64, "conditions in a filter, at most", least=1, most=200)
    filter_depth: int = setting(8, "levels of and, or, not in a filter, at most", least=0, most=32)
    filter_values: int = setting(
        1000, "values in a filter, all lists together, at most", least=1, most=10_000
    )
    filter_chars: int = setting(
        65_536, "characters of names and strings in a filter, at most", least=1, most=1_000_000
    )
    query_chars: int = setting(8192, "characters of a query, at most", least=1, most=1_000_000)
    most_hits: int = setting(1000, "hits that a search may request, at most", least=1)
    overfetch: int = setting(3, "candidates fetched for each hit before re-scoring", least=1)
    reranker: str = setting(
        "", "reranker of searches that do not say otherwise, by name; empty: none"
    )
    rerank_key: str = setting("", "API key of a reranker that is given by URL", secret=True)
    rerank_candidates: int = setting(
        50, "candidates that are reranked; more if more hits are requested", least=1, most=1000
    )
    rerank_seconds: float = setting(
        2.0, "time limit of a reranker; then hits keep the order without it", least=0.01
    )
    cache_mb: int = setting(1024, "memory for vectors cached for search", least=1)
    memory_mb: int = setting(32, "text that a worker holds in memory at once", least=1)
    add_batch: int = setting(1000, "records that `add_many` saves in one transaction", least=1)
    connect_seconds: float = setting(10.0, "how long to wait for a database connection", least=0.1)
    postgres_connections: int = setting(
        10, "connections to PostgreSQL per process, at most", least=2
    )
    postgres_replicas: str = setting(
        "", "URLs of read replicas that answer searches, separated by commas", secret=True
    )
    replica_lag_seconds: float = setting(
        10.0, "how old what a replica answers may be; the primary answers otherwise", least=0
    )
    replica_wait_seconds: float = setting(
        1.0, "how long a search after a ticket waits for a replica to have it", least=0
    )
    postgres_prepare: bool = setting(
        True, "use prepared statements; set False for PgBouncer in transaction mode"
    )
    listen: bool = setting(
        True, "use LISTEN and NOTIFY; set False for PgBouncer in transaction mode"
    )
    hnsw_rows: int = setting(
        50_000, "number of vectors at which pgvector builds an HNSW index; 0: never", least=0
    )
    hnsw_memory_mb: int = setting(
        1024,
        "memory of the server for building HNSW indexes, if maintenance_work_mem is not more; a "
        "build takes what its vectors need",
        least=1,
    )
    pgvector_half: bool = setting(False, "store vectors of new collections in half precision")
    postgres_partitions: int = setting(
        1, "partitions of each large table of a store that is created", least=1, most=256
    )
    pgvector_partitions: int = setting(
        0, "partitions of a new collection's vectors; 0: as many as its store", least=0, most=256
    )
    writer_lock_seconds: float = setting(
        300.0, "how long the writer lock of a LanceDB index holds without renewal", least=0.05
    )
    lancedb_ann_rows: int = setting(
        100_000, "number of vectors at which LanceDB builds an ANN index; 0: never", least=0
    )
    qdrant_key: str = setting(
        "", "API key of the Qdrant server; default $QDRANT_API_KEY", secret=True
    )
    qdrant_collection: str = setting(
        "evervec_{version}",
        "name of a collection in Qdrant; {version}: the embedding version's name",
    )
    qdrant_seconds: float = setting(10.0, "timeout of a call to Qdrant", least=0.1)
    qdrant_quantization: str = setting(
        "", "quantization of new collections in Qdrant: scalar, binary or product; empty: none"
    )
    qdrant_shards: int = setting(0, "shards of new collections; 0: Qdrant's default", least=0)
    qdrant_replicas: int = setting(0, "replicas of new collections; 0: Qdrant's default", least=0)
    disk_free_mb: float = setting(
        100.0, "free disk space in MB below which `/readyz` reports low disk space", least=0
    )
    server_body_mb: float = setting(
        10.0, "largest body of a request, and largest line of a batch", least=0.001
    )
    server_query_mb: float = setting(
        2.0, "largest body of a request that adds no record, such as a search", least=0.001
    )
    server_buffer_mb: float = setting(
        256.0,
        "MB of request bodies held at once, and as much again of responses that clients have not "
        "read yet; one tenant may hold a quarter",
        least=0.001,
    )
    server_batch: int = setting(1_000_000, "records in one batch request, at most", least=1)
    server_batch_mb: float = setting(1000.0, "largest body of a batch request", least=0.001)
    server_page_mb: float = setting(
        10.0, "approximate text in a page of records; the rest goes to the next page", least=0.001
    )
    server_depth: int = setting(64, "how deep the JSON of a request may be nested", least=2)
    server_values: int = setting(
        20_000, "values in the JSON of a request, or in a line of a batch, at most", least=1
    )
    async_threads: int = setting(
        0, "threads of `aopen` that call the store; 0: 2, and 8 on PostgreSQL", least=0
    )
    async_query_threads: int = setting(
        0,
        "threads of `aopen` that embed queries; 0: 1 for a model in this process, 8 for a provider",
        least=0,
    )
    server_threads: int = setting(16, "requests that use the store at once", least=1)
    server_tenant_threads: int = setting(
        0,
        "of these, those of one tenant; 0: half, or an eighth while other tenants have requests",
        least=0,
    )
    server_requests: int = setting(
        2000, "requests in progress at once; more are answered with 503", least=1
    )
    server_tenant_requests: int = setting(
        500, "of these, those of one tenant; more are answered with 429", least=1
    )
    server_seconds: float = setting(
        30.0, "time limit of a request without Request-Timeout", least=0.1
    )
    server_most_seconds: float = setting(
        300.0, "longest Request-Timeout; larger values are reduced to this", least=0.1
    )
    server_repeat_hours: float = setting(
        24.0, "how long a response is kept for its Idempotency-Key", least=0.01
    )
    server_repeat_names: int = setting(
        1_000_000, "Idempotency-Keys kept per tenant, at most", least=1
    )
    server_connections: int = setting(
        2048, "open connections; never more than half of the process's limit of open files", least=1
    )
    server_client_connections: int = setting(
        512,
        "of these, connections or requests of one client: an IPv4 address, or an IPv6 /64 network",
        least=1,
    )
    server_client_rate: float = setting(
        100.0, "new connections per second of one client; burst: server_client_connections",
        least=0.01,
    )  # fmt: skip
    server_open_requests: int = setting(
        32, "requests of one client in progress that need no key, such as to sign in", least=1
    )
    server_open_rate: float = setting(
        100.0,
        "requests per second of one client without a valid key; burst: four times as many",
        least=0.01,
    )
    server_header_kb: float = setting(
        32.0, "largest request line and headers together, in KiB", least=0.25
    )
    server_headers: int = setting(100, "headers in one request, at most", least=10)
    server_header_seconds: float = setting(
        20.0, "how long the headers of a request may take to arrive", least=0.05
    )
    server_body_seconds: float = setting(
        30.0, "longest pause of a client while it sends a body or reads a response", least=0.05
    )
    server_body_rate: int = setting(
        500, "bytes per second that a client must send or read, apart from such pauses", least=1
    )
    server_idle_seconds: float = setting(
        30.0, "how long an idle connection is kept open for the next request", least=0.05
    )
    trusted_proxies: str = setting(
        "",
        "addresses and networks of proxies whose X-Forwarded-For names the client, "
        "such as 10.0.0.7, 172.16.0.0/12",
    )
    open_without_keys: bool = setting(
        False,
        "while no keys exist, give every client full access to the service; "
        "False: only clients on this machine",
    )
    token_seconds: float = setting(3600.0, "longest lifetime of a token made from a key", least=0.1)
    tokens_per_key: int = setting(1000, "tokens that may be made from one key per hour", least=1)
    session_hours: float = setting(
        12.0, "hours after which the dashboard asks for the key again", least=0.01
    )
    keep_audit_days: float = setting(90.0, "how long entries of the audit log are kept", least=0)
    keep_audit_entries: int = setting(
        100_000,
        "entries of the audit log that are kept of each action on a tenant; 0: no limit",
        least=0,
    )
    rate_per_second: float = setting(
        100.0, "requests per second that an agent may make", least=0.01
    )
    rate_burst: int = setting(200, "burst of requests that an agent may make", least=1)
    redis_url: str = setting(
        "",
        "Redis through which all processes share rate limits; empty: each process counts alone",
        secret=True,
    )
    public_url: str = setting(
        "", "URL of the service for other machines; used in signatures and by dispatch"
    )
    cron_secret: str = setting(
        "", "secret by which a scheduler starts a dispatch; default $CRON_SECRET", secret=True
    )
    worker_secret: str = setting(
        "", "secret that dispatch sends to the worker endpoint; default $WORKER_SECRET", secret=True
    )
    qstash_url: str = setting("", "URL of QStash; default $QSTASH_URL, else Upstash's own")
    qstash_token: str = setting(
        "", "token to publish through QStash; default $QSTASH_TOKEN", secret=True
    )
    qstash_current_signing_key: str = setting(
        "", "QStash's current signing key; default $QSTASH_CURRENT_SIGNING_KEY", secret=True
    )
    qstash_next_signing_key: str = setting(
        "", "QStash's next signing key; default $QSTASH_NEXT_SIGNING_KEY", secret=True
    )
    clock: Callable[[], float] = setting(time.time, "function that returns seconds since the epoch")
    rng: random.Random = field(
        default_factory=random.Random, metadata={"meaning": "source of randomness for jitter"}
    )

    def __repr__(self) -> str:
        """Leaves out secrets, including those inside URLs."""
        shown = ((f.name, getattr(self, f.name)) for f in fields(self) if f.repr)
        values = (
            f"{name}={(without_secrets(v) if isinstance(v, str) else v)!r}" for name, v in shown
        )
        return f"Settings({', '.join(values)})"

    @classmethod
    def load(cls, given: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Settings:
        """The settings of one `open` call; `SettingsError` says which one is invalid."""
        return cls(**setting_values(fields(cls), given, environ))
