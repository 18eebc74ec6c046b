-- The tables that are alike in every engine, in a neutral form that `schema.py` of each converts.
-- An engine's own `schema.sql` has the others. `numbered` is a key that counts up.

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
