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

create index evervec_records_gone on evervec_records (updated_at) where state = 'deleted';

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

-- running workers, each with its last heartbeat
create table evervec_workers (
    worker text primary key,
    version text not null,
    started_at double not null,
    seen_at double not null,
    held integer not null,
    done bigint not null
) with (fillfactor = 50);

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
