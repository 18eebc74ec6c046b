-- The first schema. Names are prefixed, because the file may be the application's own.
-- Small columns stand before large ones, so that reading them never touches overflow pages.

create table evervec_meta (
    key text primary key,
    value
) without rowid;

-- one counter for seq, record, job and point numbers: larger for whatever came later
insert into evervec_meta (key, value)
values ('counter', 0), ('paused', 0), ('removals_purged', 0);

create table evervec_records (
    record integer primary key,
    tenant text not null,
    kind text not null,
    id text not null,
    state text not null,            -- live, hidden (boxed, or not loaded yet), deleted
    seq integer not null,
    born integer not null,          -- the seq with which it appeared; a delete ends that life
    hash blob,                      -- of title and text
    weight real not null,
    created_at real not null,
    updated_at real not null,
    version integer,                -- the caller's own
    title text,
    metadata text not null,
    data text,
    text text not null,
    unique (tenant, kind, id)
);

create index evervec_records_gone on evervec_records (updated_at) where state = 'deleted';

create virtual table evervec_text using fts5 (
    scope, title, text, content = '', tokenize = 'porter unicode61 remove_diacritics 2'
);

create table evervec_versions (
    version integer primary key,
    kind text not null,
    state text not null,            -- building, serving, retired
    name text not null default '',  -- empty until an embedder adopts it
    provider text not null default '',
    model text not null default '',
    dimensions integer not null default 0,
    chunker text not null default '',
    app integer not null default 0,
    created_at real not null,
    last_sync_at real,
    unique (kind, name)
);

create table evervec_jobs (
    job_id integer primary key,
    record integer not null,
    version integer not null,
    tenant text not null,
    op text not null,
    status text not null,
    priority integer not null,
    scheduled_for real not null,
    seq integer not null,
    claimed_seq integer,
    finished_seq integer,           -- the latest seq that was finished
    attempts integer not null default 0,
    crashes integer not null default 0,
    max_attempts integer not null,
    created_at real not null,
    started_at real,
    completed_at real,
    lease_expires_at real,
    token text,
    worker text,
    error text,
    box text,
    unique (record, version)
);

-- Each state has an index of its own; with the tenant at the end they also answer stats alone,
-- but for the leased ones, which are few.
create index evervec_jobs_ready on evervec_jobs
    (priority desc, scheduled_for, job_id, version, tenant, record) where status = 'pending';
create index evervec_jobs_leased on evervec_jobs
    (lease_expires_at) where status = 'processing';
create index evervec_jobs_done on evervec_jobs
    (completed_at, tenant) where status = 'done';
create index evervec_jobs_failed on evervec_jobs
    (completed_at, tenant) where status = 'failed';

create table evervec_attempts (
    number integer primary key,
    record integer not null,
    tenant text not null,
    version integer not null,
    attempt integer not null,
    seq integer not null,
    started_at real,
    finished_at real not null,
    outcome text not null,
    chunks_embedded integer not null default 0,
    chunks_reused integer not null default 0,
    tokens integer not null default 0,
    worker text not null,
    error text
);

create index evervec_attempts_record on evervec_attempts (record);

-- what the index holds of each record: one packed row, not one per chunk
create table evervec_ledger (
    record integer not null,
    version integer not null,
    seq integer not null,
    chunks blob not null,
    primary key (record, version)
) without rowid;

create table evervec_locks (
    name text primary key,
    holder text not null,
    token text not null,
    expires_at real not null
) without rowid;

-- the store's own index: one row for each chunk; a row without a vector marks a deletion
create table evervec_points (
    point integer primary key,
    version integer not null,
    tenant text not null,
    record integer not null,
    seq integer not null,
    position integer not null,
    hash blob not null,
    vector blob,
    unique (record, version, hash)
);

create index evervec_points_feed on evervec_points (version, tenant);

-- points that are gone, for processes that hold them in memory
create table evervec_removed (
    removal integer primary key,
    version integer not null,
    tenant text not null,
    point integer not null,
    removed_at real not null
);

create index evervec_removed_feed on evervec_removed (version, tenant);
