-- Names are prefixed, because the file may be the application's database.
-- Small columns come before large ones, so that reading them never touches overflow pages.

create table evervec_meta (
    key text primary key,
    value
) without rowid;

-- one counter for seq, record, job and point numbers: a later number is always larger
insert into evervec_meta (key, value)
values ('counter', 0), ('removals_purged', 0);

create table evervec_records (
    record integer primary key,
    tenant text not null,
    kind text not null,
    id text not null,
    state text not null,            -- live, hidden (boxed, or not loaded yet), deleted
    seq integer not null,
    born integer not null,          -- the seq with which it last appeared
    hash blob,                      -- of title and text
    weight real not null,
    created_at real not null,
    updated_at real not null,
    version integer,                -- the caller's record version
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
    -- The seq of the add that filled the box. The record gets this seq when it appears, however
    -- often its job was enqueued again since. Null: the job's seq.
    box_seq integer,
    trace text,                     -- the caller's W3C traceparent; the worker continues it
    later integer not null default 0,  -- 1: not known to be due yet; see the indexes
    unique (record, version)
);

-- Each status has its own index. The indexes contain the tenant, so that stats are computed from
-- them alone; the one of leased jobs does not, because these are few. Tenants take turns. Jobs that
-- are not due yet are kept apart (`later`) from those that can be claimed, and cost nothing until a
-- claim finds that they are due.
create index evervec_jobs_turns on evervec_jobs
    (later, tenant, priority desc, scheduled_for, job_id, version, record) where status = 'pending';
create index evervec_jobs_later on evervec_jobs (scheduled_for)
    where status = 'pending' and later = 1;
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

-- the store's own index: one row per chunk; a row without a vector is a tombstone
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

-- removed points, for processes that hold points in memory
create table evervec_removed (
    removal integer primary key,
    version integer not null,
    tenant text not null,
    point integer not null,
    removed_at real not null
);

create index evervec_removed_feed on evervec_removed (version, tenant);

-- sketches of the vectors of large collections, in parts (see `indexes.sketch_parts`)
create table evervec_sketches (
    version integer not null,
    tenant text not null,
    first integer not null,         -- the part has the points above this number
    last integer not null,          -- up to this number
    mark integer not null,          -- that existed at this mark
    data blob not null,
    primary key (version, tenant, last)
);

-- What processes share: notes on providers, the cost of their calls, cached vectors.

-- the application's attached tables, and the keys that their triggers log
create table evervec_attached (
    kind text primary key,
    definition text not null,
    position text,                  -- the key up to which old rows are enqueued; null: all
    -- A row whose key or tenant is not valid for a record is set aside. `unfit` is the id of one
    -- such row (null: none is known), `times_unfit` how many were set aside since the first.
    unfit text,
    times_unfit integer not null default 0
) without rowid;

create table evervec_changes (
    number integer primary key,
    kind text not null,
    tenant text,
    id text
);

-- Tenants whose jobs are not claimed; the empty name means all tenants.
create table evervec_pauses (
    tenant text primary key
) without rowid;

-- Triggers count usage, except for new records, which come by the thousand and are counted once
-- per batch.
create trigger evervec_usage_changed after update of state, title, text, metadata, data
on evervec_records begin
    insert into evervec_usage (tenant, kind, records, bytes)
    values (new.tenant, new.kind, (new.state <> 'deleted') - (old.state <> 'deleted'),
            iif(new.state = 'deleted', 0,
                length(cast(new.text as blob)) + coalesce(length(cast(new.title as blob)), 0)
                + coalesce(length(cast(new.data as blob)), 0)
                + iif(new.metadata = '{}', 0, length(cast(new.metadata as blob))))
            - iif(old.state = 'deleted', 0,
                length(cast(old.text as blob)) + coalesce(length(cast(old.title as blob)), 0)
                + coalesce(length(cast(old.data as blob)), 0)
                + iif(old.metadata = '{}', 0, length(cast(old.metadata as blob)))))
    on conflict do update set records = records + excluded.records, bytes = bytes + excluded.bytes;
end;
create trigger evervec_usage_dropped after delete on evervec_records
when old.state <> 'deleted' begin
    update evervec_usage
    set records = records - 1,
        bytes = bytes - length(cast(old.text as blob))
            - coalesce(length(cast(old.title as blob)), 0)
            - coalesce(length(cast(old.data as blob)), 0)
            - iif(old.metadata = '{}', 0, length(cast(old.metadata as blob)))
    where tenant = old.tenant and kind = old.kind;
end;
create trigger evervec_chunks_added after insert on evervec_ledger begin
    insert into evervec_chunks (tenant, version, chunks)
    select tenant, new.version, length(new.chunks) / 24
    from evervec_records where record = new.record
    on conflict do update set chunks = chunks + excluded.chunks;
end;
create trigger evervec_chunks_changed after update of chunks on evervec_ledger begin
    update evervec_chunks
    set chunks = chunks + length(new.chunks) / 24 - length(old.chunks) / 24
    where version = new.version
        and tenant = (select tenant from evervec_records where record = new.record);
end;
create trigger evervec_chunks_dropped after delete on evervec_ledger begin
    update evervec_chunks set chunks = chunks - length(old.chunks) / 24
    where version = old.version
        and tenant = (select tenant from evervec_records where record = old.record);
end;

-- A number that differs after any change of versions, so that processes refresh their caches.
-- Changes of `last_sync_at` do not count.
insert into evervec_meta (key, value) values ('versions', 0);
create trigger evervec_versions_added after insert on evervec_versions begin
    update evervec_meta set value = random() where key = 'versions';
end;
create trigger evervec_versions_dropped after delete on evervec_versions begin
    update evervec_meta set value = random() where key = 'versions';
end;
create trigger evervec_versions_changed
after update of state, name, provider, model, dimensions, chunker, app, cut_since
on evervec_versions begin
    update evervec_meta set value = random() where key = 'versions';
end;
