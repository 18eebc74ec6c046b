-- The tables that are alike in every engine, in a neutral form that `schema.py` of each converts.
-- An engine's own `schema.sql` has the others, and further columns. `numbered` is a key that counts
-- up, `counted` a number that counts up and need not be a key; `prose` is text that is not compared.
-- Small columns come before large ones, so that reading them never touches overflow pages.

create table evervec_records (
    record bigint primary key,
    seq bigint not null,
    born bigint not null,           -- the seq with which it last appeared
    version bigint,                 -- the caller's record version
    weight double not null,
    created_at double not null,
    updated_at double not null,
    tenant text not null,
    kind text not null,
    id text not null,
    state text not null,            -- live, hidden (boxed, or not loaded yet), deleted
    hash bytea,                     -- of title and text
    title prose,
    metadata prose not null,        -- JSON, as it was given
    data prose,
    text prose not null,
    unique (tenant, kind, id)
) with (fillfactor = 85);

create index evervec_records_gone on evervec_records (updated_at, record)
    where state = 'deleted';

-- In PostgreSQL a row is updated twice. No index covers the columns that a worker writes, and the
-- fill factor leaves room on each page for the updated rows, so updates touch no index (HOT updates).
create table evervec_jobs (
    job_id bigint primary key,
    record bigint not null,
    version bigint not null,
    seq bigint not null,
    claimed_seq bigint,
    finished_seq bigint,            -- the latest seq that was finished
    scheduled_for double not null,
    created_at double not null,
    saved_at double,                -- when the latest change was saved; null: with `created_at`
    started_at double,
    completed_at double,
    lease_expires_at double,
    priority integer not null,
    attempts integer not null default 0,
    crashes integer not null default 0,
    max_attempts integer not null,
    tenant text not null,
    op text not null,
    status text not null,
    token text,
    worker prose,
    error prose,
    fingerprint text,               -- of a failed job: see model/failures.py
    box prose,
    -- The seq of the add that filled the box. The record that is read from the box keeps this seq,
    -- even if its job was enqueued again since. Null: the job's own seq.
    box_seq bigint,
    trace prose,                    -- the caller's W3C traceparent; the worker continues it
    unique (record, version)
) with (
    fillfactor = 40,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

create table evervec_attempts (
    number counted,
    record bigint not null,
    version bigint not null,
    seq bigint not null,
    started_at double,
    finished_at double not null,
    embedded_at double,             -- when its last chunk was embedded, if one had to be
    attempt integer not null,
    chunks_embedded integer not null default 0,
    chunks_reused integer not null default 0,
    tokens integer not null default 0,
    tenant text not null,
    outcome text not null,
    worker prose not null,
    error prose
);

create index evervec_attempts_record on evervec_attempts (record);

-- Tenants whose jobs are not claimed; the empty name means all tenants.
create table evervec_pauses (
    tenant text primary key
);

-- The application's attached tables. Triggers log the keys of their changed rows.
create table evervec_attached (
    kind text primary key,
    definition prose not null,
    position prose,                 -- the key up to which old rows are enqueued; null: all
    -- A row whose key or tenant is not valid for a record is set aside. `unfit` is the id of one
    -- such row (null: none is known), `times_unfit` how many were set aside since the first.
    unfit prose,
    times_unfit bigint not null default 0
);

create table evervec_versions (
    version bigint primary key,
    kind text not null,
    state text not null,            -- building, serving, standby, retired
    name text not null default '',  -- empty until an embedder adopts it
    provider text not null default '',
    model text not null default '',
    dimensions integer not null default 0,
    chunker text not null default '',
    app integer not null default 0,
    cut_since bigint not null default 0,  -- the counter when `chunker` last changed
    created_at double not null,
    last_sync_at double,
    unique (kind, name)
) with (fillfactor = 50);

-- how weight and age change the relevance of a kind's records, if the kind says so
create table evervec_kinds (
    kind text primary key,
    base double not null,
    gain double not null,
    days double                     -- null: age does not count
);

-- the chunks of each record in the index: one packed row for each record, not one for each chunk
create table evervec_ledger (
    record bigint not null,
    version bigint not null,
    seq bigint not null,
    chunks bytea not null,
    -- For an index outside the store. `fence` is the number of the record's points there (null: its
    -- seq). `doubt` is the fence of a write that began and is not confirmed, so the index may hold
    -- other points than this entry lists (null: no such write).
    fence bigint,
    doubt bigint,
    primary key (record, version)
) with (fillfactor = 85);

-- State that processes share: notes on providers, locks, the cost of calls, cached vectors.
create table evervec_notes (
    name text primary key,
    value text not null,
    revision bigint not null
) with (fillfactor = 50);

create table evervec_locks (
    name text primary key,
    holder text not null,
    token text not null,
    expires_at double not null
) with (fillfactor = 50);

create table evervec_spend (
    day text not null,
    tenant text not null,
    kind text not null,
    model text not null,
    calls double not null,
    tokens bigint not null,
    money double not null,
    primary key (day, tenant, kind, model)
) with (fillfactor = 50);

-- numbered in order of insertion: the oldest are evicted first
create table evervec_cache (
    number numbered,
    model text not null,
    hash text not null,
    vector bytea not null,
    unique (model, hash)
);

-- Vectors that came with records, until a worker has written them to the index.
create table evervec_given (
    record bigint not null,
    seq bigint not null,            -- of the change that they came with
    model text not null,
    vectors bytea not null          -- packed: the hash of each chunk, then its vector
);

create index evervec_given_record on evervec_given (record);

-- running workers, each with its last heartbeat
create table evervec_workers (
    worker text primary key,
    version text not null,
    started_at double not null,
    seen_at double not null,
    held integer not null,
    done bigint not null,
    paused integer not null default 0   -- 1: it finishes what it has and claims nothing
) with (fillfactor = 50);

-- What happened over time, in buckets of a minute, ten minutes and an hour. The tenant with the empty
-- name has all tenants together; the kind with the empty name those beyond the first few, and the depth
-- of the queue. Workers write in lanes, so that they do not wait for each other on one row.
create table evervec_history (
    tenant text not null,
    step integer not null,          -- seconds
    began bigint not null,          -- seconds since the epoch: a multiple of `step`
    kind text not null,
    lane integer not null,
    done bigint not null default 0,
    failed bigint not null default 0,
    retried bigint not null default 0,
    deleted bigint not null default 0,
    embedded bigint not null default 0,
    reused bigint not null default 0,
    tokens bigint not null default 0,
    money double not null default 0,
    -- changes by the seconds until searches found them; see `BOUNDS` in model/history.py
    fresh_0 bigint not null default 0,
    fresh_1 bigint not null default 0,
    fresh_2 bigint not null default 0,
    fresh_3 bigint not null default 0,
    fresh_4 bigint not null default 0,
    fresh_5 bigint not null default 0,
    fresh_6 bigint not null default 0,
    fresh_7 bigint not null default 0,
    fresh_8 bigint not null default 0,
    fresh_9 bigint not null default 0,
    fresh_10 bigint not null default 0,
    fresh_11 bigint not null default 0,
    fresh_12 bigint not null default 0,
    fresh_13 bigint not null default 0,
    depth bigint,                   -- the most open jobs, of those times when they were counted
    primary key (tenant, step, began, kind, lane)
) with (fillfactor = 50);

create index evervec_history_old on evervec_history (step, began);

-- Failures that are alike. A dismissed group is shown again once it fails after that.
create table evervec_failures (
    tenant text not null,
    fingerprint text not null,
    first_seen double not null,
    last_seen double not null,
    dismissed_at double,
    failed bigint not null,
    retried bigint not null,
    job_id bigint not null,         -- the job of the example
    kind text not null,
    model text not null,
    message prose not null,
    example prose not null,
    primary key (fingerprint, tenant)
) with (fillfactor = 50);

create index evervec_failures_of on evervec_failures (tenant, last_seen);
create index evervec_failures_seen on evervec_failures (last_seen);

create table evervec_failure_times (
    fingerprint text not null,
    tenant text not null,
    began bigint not null,          -- of ten minutes
    times bigint not null,
    primary key (fingerprint, tenant, began)
) with (fillfactor = 50);

create index evervec_failure_times_old on evervec_failure_times (began);

-- Keys of the service; only the hash of the secret part is stored.
create table evervec_keys (
    id text primary key,
    hash text not null,
    tenant text not null,
    agent text not null,
    role text not null,             -- admin, writer, reader
    created_at double not null,
    expires_at double,
    last_used_at double,
    revoked_at double,
    -- For a token (a short-lived key): the key that made it, and a JSON list of the kinds that it
    -- may access (null: all).
    parent text,
    kinds text
);

create index evervec_keys_of_parent on evervec_keys (parent, created_at) where parent is not null;

-- Requests by the idempotency keys of their callers: a request that is sent twice is done once.
create table evervec_asked (
    tenant text not null,
    name text not null,
    fingerprint text not null,
    answer text,
    asked_at double not null,
    primary key (tenant, name)
);

create index evervec_asked_old on evervec_asked (asked_at);

-- The audit log: who did what, from where, and the outcome.
create table evervec_audit (
    entry numbered,
    noted_at double not null,
    key_id text,                    -- null: no key was used
    agent text not null,
    tenant text not null,           -- *: all tenants
    action text not null,
    target text not null,
    outcome text not null,
    request_id text,
    client text                     -- the client's address
);

create index evervec_audit_at on evervec_audit (noted_at);
create index evervec_audit_of on evervec_audit (tenant, action, entry);

-- Change streams that are followed. While a stream is followed, the deleted records of its kind keep
-- their versions.
create table evervec_streams (
    tenant text not null,
    name text not null,
    kind text not null,
    definition prose not null,      -- JSON: how a message becomes a record
    primary key (tenant, name)
);

create table evervec_stream_parts (
    tenant text not null,
    stream text not null,
    part text not null,             -- topic and partition
    position bigint not null,       -- the last message that is saved or set aside
    lag bigint not null,            -- messages behind it
    sent_at double,                 -- when that message was sent
    seen_at double not null,
    primary key (tenant, stream, part)
) with (fillfactor = 50);

-- Messages that could not become records.
create table evervec_failed_messages (
    message numbered,
    position bigint not null,
    size bigint not null,           -- bytes of the value, of which `content` may be the beginning
    sent_at double,
    failed_at double not null,
    tenant text not null,
    stream text not null,
    part text not null,
    reason prose not null,
    headers prose not null,         -- JSON
    key bytea,
    content bytea,
    unique (tenant, stream, part, position)
);

-- Limits of single tenants; null: the default limit applies.
create table evervec_tenants (
    tenant text primary key,
    weight bigint,                  -- share of its turn in a claim (default: 1)
    kinds bigint,
    records bigint,
    bytes bigint,
    chunks bigint,
    tokens bigint,                  -- per day
    money double                    -- per day
);

-- Tenants whose jobs wait because a daily limit is used up.
create table evervec_holds (
    tenant text primary key,
    until double not null
);

-- Usage of tenants, counted in the transaction of each change.
create table evervec_usage (
    tenant text not null,
    kind text not null,
    records bigint not null,        -- records that are not deleted
    bytes bigint not null,          -- size of their titles, texts, metadata and typed data
    primary key (tenant, kind)
) with (fillfactor = 50);

create table evervec_chunks (
    tenant text not null,
    version bigint not null,
    chunks bigint not null,         -- chunks in the ledger: each takes 24 bytes of an entry
    primary key (tenant, version)
) with (fillfactor = 50);
