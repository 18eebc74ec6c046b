"""Every setting once: its name, default, meaning, and `EVERVEC_…` in the environment.

What is given to `open` wins over the environment, which wins over the default.
"""

from __future__ import annotations

import difflib
import math
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from evervec.errors import SettingsError
from evervec.telemetry.visible import without_secrets


def _setting(
    default: Any,
    meaning: str,
    *,
    least: float | None = None,
    most: float | None = None,
    secret: bool = False,
) -> Any:
    meta = {"meaning": meaning, "least": least, "most": most, "secret": secret}
    if callable(default):
        return field(default_factory=lambda: default, metadata=meta)
    return field(default=default, repr=not secret, metadata=meta)


@dataclass(frozen=True, repr=False)
class Settings:
    """How this process works; each field is a setting of `evervec.open`."""

    max_attempts: int = _setting(10, "attempts before a job becomes a dead letter", least=1)
    backoff_seconds: float = _setting(
        1.0, "wait after the first failure; doubles each time", least=0
    )
    backoff_cap_seconds: float = _setting(300.0, "longest wait between attempts", least=0)
    backoff_jitter: float = _setting(
        0.2, "share by which a wait varies, up or down", least=0, most=1
    )
    batch_size: int = _setting(256, "jobs claimed at once", least=1)
    concurrency: int = _setting(3, "provider calls in flight", least=1)
    poll_seconds: float = _setting(
        0.0,
        "how often a worker looks for what other processes wrote; "
        "0: 0.1 s on SQLite and DuckDB, 1 s on PostgreSQL, which tells of it",
        least=0,
    )
    lease_seconds: float = _setting(60.0, "how long a claim holds without renewal", least=0.05)
    drain_seconds: float = _setting(
        30.0, "how long a stopping worker finishes what it holds", least=0
    )
    wait_seconds: float = _setting(30.0, "how long `wait` waits when not told", least=0)
    busy_seconds: float = _setting(
        5.0, "how long to wait for a lock held by another process or transaction", least=0
    )
    keep_done_days: float = _setting(
        7.0, "how long done jobs, attempts and tombstones stay", least=0
    )
    keep_dead_days: float = _setting(7.0, "how long dead letters stay", least=0)
    housekeeping_seconds: float = _setting(
        60.0, "how often a worker sweeps what is past its time", least=0.01
    )
    alert_failed: int = _setting(10, "failed jobs that raise an alert", least=1)
    alert_lag_seconds: float = _setting(
        600.0, "how long due work (not backfill) may wait before an alert; 0: no alert", least=0
    )
    alert_away_seconds: float = _setting(
        60.0, "how long provider or index may be away before an alert; 0: no alert", least=0
    )
    alert_transaction_seconds: float = _setting(
        600.0,
        "how long a transaction may keep PostgreSQL from clearing away before an alert; 0: no alert",
        least=0,
    )
    alert_url: str = _setting("", "where alerts and their ends are posted as JSON", secret=True)
    openai_url: str = _setting(
        "", "where an OpenAI-compatible server is; default $OPENAI_BASE_URL, else OpenAI's own"
    )
    openai_key: str = _setting("", "its key; default $OPENAI_API_KEY", secret=True)
    ollama_url: str = _setting(
        "", "where Ollama is; default $OLLAMA_HOST, else port 11434 of this machine"
    )
    ollama_chars: int = _setting(
        2000, "characters of a text that are sent to Ollama, to the last whole word", least=16
    )
    dimensions: int = _setting(
        0, "numbers of a vector, for OpenAI and Ollama; 0: the model's default", least=0
    )
    provider_batch: int = _setting(
        0, "texts in one call to OpenAI or Ollama; 0: as many as it takes", least=0
    )
    provider_seconds: float = _setting(
        60.0, "how long OpenAI or Ollama may take to embed a batch", least=0.01
    )
    query_seconds: float = _setting(
        10.0, "how long OpenAI or Ollama may take to embed a question", least=0.01
    )
    requests_per_minute: int = _setting(
        0, "calls to the provider by all workers together; 0: no limit", least=0
    )
    tokens_per_minute: int = _setting(
        0, "tokens sent to the provider by all workers together; 0: no limit", least=0
    )
    price_per_million: float = _setting(
        0.0, "what a million tokens cost, in your currency", least=0
    )
    daily_tokens: int = _setting(
        0, "tokens a day (UTC) after which embedding pauses; 0: no cap", least=0
    )
    daily_money: float = _setting(
        0.0, "money a day (UTC) after which embedding pauses; 0: no cap", least=0
    )
    tenant_kinds: int = _setting(
        200, "kinds that a tenant may have records of; 0: as many as it likes", least=0
    )
    tenant_records: int = _setting(
        0, "records that a tenant may have; 0: as many as it likes", least=0
    )
    tenant_bytes: int = _setting(
        0, "bytes of a tenant's titles, texts and metadata; 0: as many as it likes", least=0
    )
    tenant_chunks: int = _setting(
        0, "chunks of a tenant in the index; 0: as many as it likes", least=0
    )
    tenant_tokens: int = _setting(
        0, "tokens a day (UTC) after which a tenant's jobs wait; 0: no bound", least=0
    )
    tenant_money: float = _setting(
        0.0, "money a day (UTC) after which a tenant's jobs wait; 0: no bound", least=0
    )
    backfill_priority: int = _setting(
        -100, "priority of what a backfill enqueues", least=-1000, most=1000
    )
    vector_cache_mb: int = _setting(
        0, "vectors kept for texts that other records have too; 0: none", least=0
    )
    chunk_tokens: int = _setting(
        400, "tokens of a chunk, at most; less where the model takes less", least=4
    )
    text_chars: int = _setting(16_000_000, "characters of a record's text, at most", least=1)
    title_chars: int = _setting(2048, "characters of a record's title, at most", least=1)
    metadata_bytes: int = _setting(
        65_536, "bytes of a record's metadata as JSON, at most", least=2, most=16_000_000
    )
    metadata_values: int = _setting(
        2000, "values in a record's metadata, nested ones too, at most", least=1
    )
    metadata_depth: int = _setting(
        32, "how deep a record's metadata may be nested", least=1, most=100
    )
    filter_conditions: int = _setting(64, "conditions in a filter, at most", least=1, most=200)
    filter_values: int = _setting(
        1000,
        "values that a filter compares with, all lists together, at most",
        least=1,
        most=10_000,
    )
    filter_chars: int = _setting(
        65_536, "characters of the names and texts in a filter, at most", least=1, most=1_000_000
    )
    query_chars: int = _setting(8192, "characters of a query, at most", least=1, most=1_000_000)
    most_hits: int = _setting(1000, "hits that a search may ask for, at most", least=1)
    overfetch: int = _setting(3, "candidates fetched for each hit before re-scoring", least=1)
    cache_mb: int = _setting(1024, "memory for vectors kept ready for search", least=1)
    memory_mb: int = _setting(32, "text that a worker holds at once", least=1)
    add_batch: int = _setting(1000, "records that `add_many` saves in one transaction", least=1)
    connect_seconds: float = _setting(10.0, "how long to wait for a connection", least=0.1)
    postgres_connections: int = _setting(
        10, "connections to PostgreSQL that a process holds at most", least=2
    )
    postgres_prepare: bool = _setting(
        True, "prepared statements; not with PgBouncer in transaction mode"
    )
    listen: bool = _setting(True, "LISTEN and NOTIFY; not with PgBouncer in transaction mode")
    hnsw_rows: int = _setting(
        50_000, "vectors from which on pgvector builds an HNSW index; 0: never", least=0
    )
    pgvector_half: bool = _setting(False, "new collections keep vectors in half precision")
    writer_lock_seconds: float = _setting(
        300.0, "how long a writer's turn at a LanceDB index holds without renewal", least=0.05
    )
    lancedb_ann_rows: int = _setting(
        100_000, "vectors from which on LanceDB builds an ANN index; 0: never", least=0
    )
    qdrant_key: str = _setting(
        "", "the key of a Qdrant server; default $QDRANT_API_KEY", secret=True
    )
    qdrant_collection: str = _setting(
        "evervec_{version}", "name of the collection in Qdrant; {version}: the embedding version's"
    )
    qdrant_seconds: float = _setting(10.0, "how long Qdrant may take to answer", least=0.1)
    qdrant_quantization: str = _setting(
        "", "of new collections in Qdrant: scalar, binary or product; empty: none"
    )
    qdrant_shards: int = _setting(0, "shards of new collections; 0: as Qdrant says", least=0)
    qdrant_replicas: int = _setting(0, "replicas of new collections; 0: as Qdrant says", least=0)
    disk_free_mb: float = _setting(
        100.0, "free disk space in MB below which `/readyz` says that the disk is low", least=0
    )
    server_body_mb: float = _setting(
        10.0, "largest body of a request, and largest line of a batch", least=0.001
    )
    server_batch: int = _setting(1_000_000, "records in one batch request, at most", least=1)
    server_batch_mb: float = _setting(1000.0, "largest body of a batch request", least=0.001)
    server_page_mb: float = _setting(
        10.0,
        "text in a page of records, about; what is more is left for the next page",
        least=0.001,
    )
    server_depth: int = _setting(64, "how deep the JSON of a request may be nested", least=2)
    server_values: int = _setting(
        20_000, "values in the JSON of a request, or in a line of a batch, at most", least=1
    )
    server_threads: int = _setting(16, "requests at work in the store at once", least=1)
    server_tenant_threads: int = _setting(
        0,
        "of those, the ones that one tenant may use; 0: half, or an eighth while others ask",
        least=0,
    )
    server_requests: int = _setting(
        2000, "requests under way at once; more are answered 503", least=1
    )
    server_tenant_requests: int = _setting(
        500, "of those, the ones of one tenant; more are answered 429", least=1
    )
    server_seconds: float = _setting(
        30.0, "how long a request may take that has no Request-Timeout", least=0.1
    )
    server_most_seconds: float = _setting(
        300.0, "the longest Request-Timeout; more is taken for this", least=0.1
    )
    server_repeat_hours: float = _setting(
        24.0, "how long an answer is kept for the same Idempotency-Key", least=0.01
    )
    server_repeat_names: int = _setting(
        1_000_000, "Idempotency-Keys that are kept for a tenant, at most", least=1
    )
    server_connections: int = _setting(
        2048,
        "connections open at once, at most half of the files that the process may open",
        least=1,
    )
    server_client_connections: int = _setting(
        512,
        "of these, connections or requests of one client: an IPv4 address, or an IPv6 network /64",
        least=1,
    )
    server_client_rate: float = _setting(
        100.0, "connections a second that one client may open, after as many as it may have",
        least=0.01,
    )  # fmt: skip
    server_header_kb: float = _setting(
        32.0, "largest request line and headers together, in KiB", least=0.25
    )
    server_headers: int = _setting(100, "headers in one request, at most", least=10)
    server_header_seconds: float = _setting(
        20.0, "how long the headers of a request may take to come", least=0.05
    )
    server_body_seconds: float = _setting(
        30.0, "longest pause of a client in sending a body or reading an answer", least=0.05
    )
    server_body_rate: int = _setting(
        500, "bytes a second that a client must send or read, beside such pauses", least=1
    )
    server_idle_seconds: float = _setting(
        30.0, "how long a connection is kept for the next request", least=0.05
    )
    trusted_proxies: str = _setting(
        "",
        "addresses and networks of proxies whose X-Forwarded-For names the client, "
        "such as 10.0.0.7, 172.16.0.0/12",
    )
    open_without_keys: bool = _setting(
        False,
        "as long as there are no keys, whoever reaches the service may do everything; "
        "False: only programs on this machine",
    )
    token_seconds: float = _setting(3600.0, "longest life of a token made from a key", least=0.1)
    tokens_per_key: int = _setting(1000, "tokens that may be made from one key in an hour", least=1)
    keep_audit_days: float = _setting(90.0, "how long entries of the audit log stay", least=0)
    rate_per_second: float = _setting(100.0, "requests a second that an agent may make", least=0.01)
    rate_burst: int = _setting(200, "requests that an agent may make at once", least=1)
    redis_url: str = _setting(
        "",
        "Redis that all processes share the rate limit in; empty: each counts alone",
        secret=True,
    )
    public_url: str = _setting(
        "", "where other machines reach the service; signatures name it, and dispatch sends there"
    )
    cron_secret: str = _setting(
        "", "what a scheduler shows to start a dispatch; default $CRON_SECRET", secret=True
    )
    worker_secret: str = _setting(
        "", "what dispatch shows to the worker endpoint; default $WORKER_SECRET", secret=True
    )
    qstash_url: str = _setting("", "where QStash is; default $QSTASH_URL, else Upstash's own")
    qstash_token: str = _setting(
        "", "for publishing through QStash; default $QSTASH_TOKEN", secret=True
    )
    qstash_current_signing_key: str = _setting(
        "", "what QStash signs with; default $QSTASH_CURRENT_SIGNING_KEY", secret=True
    )
    qstash_next_signing_key: str = _setting(
        "", "what it will sign with next; default $QSTASH_NEXT_SIGNING_KEY", secret=True
    )
    clock: Callable[[], float] = _setting(time.time, "seconds since the epoch")
    rng: random.Random = field(
        default_factory=random.Random, metadata={"meaning": "randomness of the jitter"}
    )

    def __repr__(self) -> str:
        """With neither secrets nor what URLs may contain of them."""
        shown = ((f.name, getattr(self, f.name)) for f in fields(self) if f.repr)
        values = (
            f"{name}={(without_secrets(value) if isinstance(value, str) else value)!r}"
            for name, value in shown
        )
        return f"Settings({', '.join(values)})"

    @classmethod
    def load(cls, given: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Settings:
        """The settings of one `open`; `SettingsError` names what is wrong."""
        known = {f.name: f for f in fields(cls)}
        for name in given:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean {close[0]!r}?" if close else "see evervec.Settings."
                raise SettingsError(f"there is no setting {name!r}; {hint}")
        values = dict(given)
        for name, f in known.items():
            variable = f"EVERVEC_{name.upper()}"
            if name not in values and f.type in _CAST and environ.get(variable):
                values[name] = _from_text(variable, environ[variable], str(f.type))
        for name, value in values.items():
            _check(name, value, str(known[name].type), known[name].metadata)
        return cls(**values)


def _truth(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise ValueError
    return word in _TRUE


_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
_CAST: Mapping[Any, Callable[[str], Any]] = {
    "int": int, "float": float, "str": str, "bool": _truth,
}  # fmt: skip


def _from_text(variable: str, text: str, kind: str) -> Any:
    try:
        return _CAST[kind](text)
    except ValueError:
        raise SettingsError(f"{variable} must be {_NOUN[kind]}, not {text!r}") from None


_NOUN = {"int": "a whole number", "float": "a number", "bool": "true or false"}


def _check(name: str, value: Any, kind: str, meta: Mapping[str, Any]) -> None:
    if name == "clock" and not callable(value):
        raise SettingsError(f"clock must be a function that gives seconds, not {value!r}")
    if name == "rng" and not isinstance(value, random.Random):
        raise SettingsError(f"rng must be a random.Random, not {value!r}")
    if name == "alert_url" and value and not str(value).startswith(("http://", "https://")):
        raise SettingsError("alert_url must begin with http:// or https://")
    if kind == "str" and not isinstance(value, str):
        raise SettingsError(f"{name} must be text, not {type(value).__name__} ({meta['meaning']})")
    if kind not in _NOUN:
        return
    if kind == "bool":
        if not isinstance(value, bool):
            raise SettingsError(f"{name} must be True or False, not {value!r} ({meta['meaning']})")
        return
    accepted = (int,) if kind == "int" else (int, float)
    if isinstance(value, bool) or not isinstance(value, accepted) or not math.isfinite(value):
        raise SettingsError(f"{name} must be {_NOUN[kind]}, not {value!r} ({meta['meaning']})")
    least, most = meta["least"], meta["most"]
    if least is not None and value < least:
        raise SettingsError(f"{name} must be at least {least}, not {value!r} ({meta['meaning']})")
    if most is not None and value > most:
        raise SettingsError(f"{name} must be at most {most}, not {value!r} ({meta['meaning']})")
