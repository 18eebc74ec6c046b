-- Names have a prefix, because the file may belong to the application.
-- Rows are found by column scans, which DuckDB does fast. The only indexes are those that prevent
-- two transactions from inserting the same key.

create table evervec_meta (
    key varchar not null,
    value bigint not null
);

-- one counter for seq, record, job and point numbers: later rows have greater numbers
insert into evervec_meta (key, value)
values ('schema', 0), ('counter', 0), ('removals_purged', 0);

-- the connections of callers, and how many calls joined a transaction on each
create table evervec_callers (
    caller bigint not null,
    calls bigint not null
);

create table evervec_records (
    record bigint not null,
    tenant varchar not null,
    kind varchar not null,
    id varchar not null,
    state varchar not null,         -- live, hidden (boxed, or not loaded yet), deleted
    seq bigint not null,
    born bigint not null,           -- the seq that made it live; another one after a delete
    hash blob,                      -- of title and text
    weight double not null,
    created_at double not null,
    updated_at double not null,
    version bigint,                 -- the caller's record version
    title varchar,
    metadata varchar not null,
    data varchar,
    text varchar not null,
    words varchar,                  -- the stems of title and text, each between two spaces
    unique (tenant, kind, id)
);

-- how often a word occurs in a live record; words in the title count twice. Words are stored as
-- numbers, which are scanned many times as fast
create table evervec_words (
    record bigint not null,
    word ubigint not null,
    times integer not null
);

create table evervec_versions (
    version bigint not null,
    kind varchar not null,
    state varchar not null,         -- building, serving, standby, retired
    name varchar not null default '',  -- empty until an embedder adopts it
    provider varchar not null default '',
    model varchar not null default '',
    dimensions integer not null default 0,
    chunker varchar not null default '',
    app integer not null default 0,
    cut_since bigint not null default 0,  -- the counter when `chunker` last changed
    created_at double not null,
    last_sync_at double
);

create table evervec_jobs (
    job_id bigint not null,
    record bigint not null,
    version bigint not null,
    tenant varchar not null,
    op varchar not null,
    status varchar not null,
    priority bigint not null,
    scheduled_for double not null,
    seq bigint not null,
    claimed_seq bigint,
    finished_seq bigint,            -- the latest seq that was finished
    attempts bigint not null default 0,
    crashes bigint not null default 0,
    max_attempts bigint not null,
    created_at double not null,
    started_at double,
    completed_at double,
    lease_expires_at double,
    token varchar,
    worker varchar,
    error varchar,
    box varchar,
    -- The seq of the add that filled the box. The record that is read from the box keeps this seq,
    -- even if its job was enqueued again since. Null: the job's own seq.
    box_seq bigint,
    trace varchar,                  -- the caller's trace (W3C traceparent), continued by the worker
    unique (record, version)
);

create sequence evervec_attempt_numbers;

create table evervec_attempts (
    number bigint not null default nextval('evervec_attempt_numbers'),
    record bigint not null,
    tenant varchar not null,
    version bigint not null,
    attempt bigint not null,
    seq bigint not null,
    started_at double,
    finished_at double not null,
    outcome varchar not null,
    chunks_embedded bigint not null default 0,
    chunks_reused bigint not null default 0,
    tokens bigint not null default 0,
    worker varchar not null,
    error varchar
);

-- the chunks of each record in the index: one packed row for each record, not one for each chunk
create table evervec_ledger (
    record bigint not null,
    version bigint not null,
    seq bigint not null,
    chunks blob not null,
    -- For an index outside the store. `fence` is the number of the record's points there (null: its
    -- seq). `doubt` is the fence of a write that began and is not confirmed, so the index may hold
    -- other points than this entry lists (null: no such write).
    fence bigint,
    doubt bigint
);

create table evervec_locks (
    name varchar not null,
    holder varchar not null,
    token varchar not null,
    expires_at double not null
);

-- running workers, each with its last heartbeat
create table evervec_workers (
    worker varchar not null,
    version varchar not null,
    started_at double not null,
    seen_at double not null,
    held integer not null,
    done bigint not null
);

-- the store's own index: one row for each chunk; a row without a vector is a tombstone
create table evervec_points (
    point bigint not null,
    version bigint not null,
    tenant varchar not null,
    record bigint not null,
    seq bigint not null,
    position bigint not null,
    hash blob not null,
    vector blob
);

-- removed points, for processes that hold points in memory
create table evervec_removed (
    removal bigint not null,
    version bigint not null,
    tenant varchar not null,
    point bigint not null,
    removed_at double not null
);

-- sketches of the vectors of large collections, in parts (see `indexes.sketch_parts`)
create table evervec_sketches (
    version bigint not null,
    tenant varchar not null,
    first bigint not null,          -- the part has the points above this number
    last bigint not null,           -- up to this number
    mark bigint not null,           -- that existed at this mark
    data blob not null,
    primary key (version, tenant, last)
);

-- State that workers share: notes on providers, the cost of their calls, cached vectors.
create table evervec_notes (
    name varchar not null,
    value varchar not null,
    revision bigint not null
);

create table evervec_spend (
    day varchar not null,
    tenant varchar not null,
    kind varchar not null,
    model varchar not null,
    calls double not null,
    tokens bigint not null,
    money double not null
);

-- numbered in order of insertion: the oldest are evicted first
create sequence evervec_cache_numbers;

create table evervec_cache (
    number bigint not null default nextval('evervec_cache_numbers'),
    model varchar not null,
    hash varchar not null,
    vector blob not null
);

-- Keys of the service; only the hash of the secret part is stored.
create table evervec_keys (
    id varchar not null,
    hash varchar not null,
    tenant varchar not null,
    agent varchar not null,
    role varchar not null,             -- admin, writer, reader
    created_at double not null,
    expires_at double,
    last_used_at double,
    revoked_at double,
    -- For a token (a short-lived key): the key that made it, and a JSON list of the kinds that it
    -- may access (null: all).
    parent varchar,
    kinds varchar
);

-- Requests by the idempotency keys of their callers: a request that is sent twice is done once.
create table evervec_asked (
    tenant varchar not null,
    name varchar not null,
    fingerprint varchar not null,
    answer varchar,
    asked_at double not null
);

-- The audit log: who did what, from where, and the outcome.
create sequence evervec_audit_entries;
create table evervec_audit (
    entry bigint not null default nextval('evervec_audit_entries'),
    noted_at double not null,
    key_id varchar,                     -- null: no key was used
    agent varchar not null,
    tenant varchar not null,            -- *: all tenants
    action varchar not null,
    target varchar not null,
    outcome varchar not null,
    request_id varchar,
    client varchar                      -- the client's address
);

-- Paused tenants, whose jobs are not claimed; the empty name stands for all tenants.
create table evervec_pauses (
    tenant varchar primary key
);

-- Limits of single tenants; null: the default limit applies.
create table evervec_tenants (
    tenant varchar not null,
    weight bigint,                  -- share of its turn in a claim; other tenants have 1
    kinds bigint,
    records bigint,
    bytes bigint,
    chunks bigint,
    tokens bigint,                  -- per day
    money double                    -- per day
);

-- Tenants whose jobs wait because a daily limit is used up.
create table evervec_holds (
    tenant varchar not null,
    until double not null
);

-- Usage of tenants, counted in the transaction of each change.
create table evervec_usage (
    tenant varchar not null,
    kind varchar not null,
    records bigint not null,        -- records that are not deleted
    bytes bigint not null           -- size of their titles, texts, metadata and typed data
);

create table evervec_chunks (
    tenant varchar not null,
    version bigint not null,
    chunks bigint not null          -- chunks in the ledger: each takes 24 bytes of an entry
);
