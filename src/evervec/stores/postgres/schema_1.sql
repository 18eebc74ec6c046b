-- The first schema. Everything is in the schema `evervec`, whose meta table the upgrade makes.
-- Names are compared byte by byte, as everywhere in evervec, whatever the database's locale.

insert into evervec.meta (key, value) values ('paused', 0);

-- One sequence for seq, record and job numbers. It hands them out one by one: a session that
-- kept some back would give a later change the smaller number.
create sequence evervec.numbers cache 1;

-- The clock that rules leases and schedules. Tests put another in its place.
create function evervec.now_seconds() returns double precision
language sql volatile parallel safe
return extract(epoch from clock_timestamp())::double precision;

create table evervec.records (
    record bigint primary key,
    seq bigint not null,
    born bigint not null,           -- the seq with which it appeared; a delete ends that life
    version bigint,                 -- the caller's own
    weight double precision not null,
    created_at double precision not null,
    updated_at double precision not null,
    tenant text collate "C" not null,
    kind text collate "C" not null,
    id text collate "C" not null,
    state text collate "C" not null,  -- live, hidden (boxed, or not loaded yet), deleted
    hash bytea,                     -- of title and text
    title text,
    metadata text not null,         -- JSON; jsonb would not give it back as it was
    data text,
    text text not null,
    words tsvector,                 -- of a live record: its title, its text, and its tenant
    unique (tenant, kind, id)
) with (fillfactor = 85);

create index records_gone on evervec.records (updated_at) where state = 'deleted';
create index records_words on evervec.records using gin (words) where state = 'live';

-- words by their stem; none is left out, for a text of little words is still a text
create text search dictionary evervec.stem (template = snowball, language = english);
create text search configuration evervec.words (copy = simple);
alter text search configuration evervec.words
    alter mapping for asciiword, word, numword, hword, hword_part, hword_asciipart, asciihword,
        numhword, hword_numpart
    with evervec.stem;

create function evervec.words_of(owner text, title text, body text) returns tsvector
language sql immutable parallel safe
return case when body is null then null else
    array_to_tsvector(array[owner])
    || setweight(to_tsvector('evervec.words'::regconfig, coalesce(title, '')), 'A')
    || setweight(to_tsvector('evervec.words'::regconfig, body), 'B')
end;

create table evervec.versions (
    version bigint primary key,
    kind text collate "C" not null,
    state text collate "C" not null,  -- building, serving, retired
    name text collate "C" not null default '',  -- empty until an embedder adopts it
    provider text not null default '',
    model text not null default '',
    dimensions integer not null default 0,
    chunker text not null default '',
    app integer not null default 0,
    cut_since bigint not null default 0,  -- the counter when `chunker` last changed
    created_at double precision not null,
    last_sync_at double precision,
    unique (kind, name)
) with (fillfactor = 50);

-- What processes share: notes on providers, what their calls cost, vectors to use again.
create table evervec.notes (
    name text collate "C" primary key,
    value text not null,
    revision bigint not null
) with (fillfactor = 50);

create table evervec.spend (
    day text collate "C" not null,
    tenant text collate "C" not null,
    kind text collate "C" not null,
    model text collate "C" not null,
    calls double precision not null,
    tokens bigint not null,
    money double precision not null,
    primary key (day, tenant, kind, model)
) with (fillfactor = 50);

-- numbered in order of their coming: the oldest go first
create table evervec.cache (
    number bigint generated always as identity primary key,
    model text collate "C" not null,
    hash text collate "C" not null,
    vector bytea not null,
    unique (model, hash)
);

-- tables of the application that are kept in step, and the keys that their triggers log
create table evervec.attached (
    kind text collate "C" primary key,
    definition text not null,
    position text                   -- the key up to which old rows are enqueued; null: all
);

-- Rows live for a moment, and nobody looks for one of them, so there is no index to keep.
create table evervec.changes (
    kind text collate "C" not null,
    tenant text collate "C",
    id text collate "C"
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- A publication for all tables lets only rows be deleted that can be told apart.
alter table evervec.changes replica identity full;

-- Rows change state twice in their life, so pages keep room for that, and vacuum comes early.
-- A change of an indexed column puts the row's new version into every index anew, so no index
-- is on what a worker writes: of a finish, the heap alone learns.
create table evervec.jobs (
    job_id bigint primary key with (fillfactor = 50),
    record bigint not null,
    version bigint not null,
    seq bigint not null,
    claimed_seq bigint,
    finished_seq bigint,            -- the latest seq that was finished
    scheduled_for double precision not null,
    created_at double precision not null,
    started_at double precision,
    completed_at double precision,
    lease_expires_at double precision,
    priority integer not null,
    attempts integer not null default 0,
    crashes integer not null default 0,
    max_attempts integer not null,
    tenant text collate "C" not null,
    op text collate "C" not null,
    status text collate "C" not null,
    token text collate "C",
    worker text,
    error text,
    box text,
    -- what indexes may know of the status: neither changes when a claimed job is done
    waits boolean not null generated always as (status = 'pending') stored,
    failed_at double precision
        generated always as (case when status = 'failed' then completed_at end) stored,
    unique (record, version) with (fillfactor = 50)
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- Those that wait have a second one, for fairness.
create index jobs_ready on evervec.jobs (priority desc, scheduled_for, job_id) where waits;
create index jobs_by_tenant on evervec.jobs
    (priority desc, tenant, scheduled_for, job_id) where waits;
create index jobs_failed on evervec.jobs (failed_at, tenant) where failed_at is not null;
-- of a range of pages it knows the first and the last, which hardly ever changes
create index jobs_completed on evervec.jobs using brin (completed_at);

-- Where to look for leases that ran out: one row for all jobs of a claim. Each job has its own
-- lease, and none of them ends before `expires_at`. A row goes when `held` comes down to
-- nothing, or else once its time has come and none of its jobs is held any more.
create table evervec.claims (
    token text collate "C" primary key,
    started_at double precision not null,
    expires_at double precision not null,
    held integer not null,
    jobs bigint[] not null
) with (fillfactor = 50);

create index claims_expire on evervec.claims (expires_at);

create table evervec.attempts (
    number bigint generated always as identity,
    record bigint not null,
    version bigint not null,
    seq bigint not null,
    started_at double precision,
    finished_at double precision not null,
    attempt integer not null,
    chunks_embedded integer not null default 0,
    chunks_reused integer not null default 0,
    tokens integer not null default 0,
    tenant text collate "C" not null,
    outcome text collate "C" not null,
    worker text not null,
    error text
);

create index attempts_record on evervec.attempts (record);
create index attempts_finished on evervec.attempts using brin (finished_at);
alter table evervec.attempts replica identity full;  -- as for changes: no key is kept for it

-- what the index holds of each record: one packed row, not one per chunk
create table evervec.ledger (
    record bigint not null,
    version bigint not null,
    seq bigint not null,
    chunks bytea not null,
    primary key (record, version)
) with (fillfactor = 85);

create table evervec.locks (
    name text primary key,
    holder text not null,
    token text not null,
    expires_at double precision not null
) with (fillfactor = 50);

-- the workers that live, each by its last word
create table evervec.workers (
    worker text primary key,
    version text not null,
    started_at double precision not null,
    seen_at double precision not null,
    held integer not null,
    done bigint not null
) with (fillfactor = 50);

-- The store's own index has a table `points_<version>` for each collection, made when its first
-- vector comes; a removal that must stop late writes is noted here.
create table evervec.removals (
    version bigint not null,
    record bigint not null,
    seq bigint not null,
    primary key (version, record)
);

-- Keys of the service, by the hash of their secret part.
create table evervec.keys (
    id text primary key,
    hash text not null,
    tenant text not null,
    agent text not null,
    role text not null,             -- admin, writer, reader
    created_at double precision not null,
    expires_at double precision,
    last_used_at double precision,
    revoked_at double precision
);

-- Requests by the names that their callers gave them, so that one sent twice is done once.
create table evervec.asked (
    tenant text not null,
    name text not null,
    fingerprint text not null,
    answer text,
    asked_at double precision not null,
    primary key (tenant, name)
);

create index asked_old on evervec.asked (asked_at);
