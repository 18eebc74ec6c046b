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

-- Paused tenants, whose jobs are not claimed; the empty name stands for all tenants.
create table evervec_pauses (
    tenant varchar primary key
);
