-- Everything is in the schema `evervec`, whose meta table the upgrade makes. Names are compared byte by
-- byte, as everywhere in evervec, whatever the database's locale.
-- `queue.sql` has the functions of claims, `queue_in_sql.sql` the queue for programs in other languages,
-- and `usage.sql` what tenants have.

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

-- A random number that changes with any change of versions except the time of their last write: caches of
-- the versions compare it. (A sequence would repeat itself after a restore.)
insert into evervec.meta (key, value) values ('versions', 0);

create function evervec.note_versions() returns trigger
language plpgsql
as $$
begin
    update evervec.meta set value = (random() * 9e15)::bigint where key = 'versions';
    return null;
end
$$;

create trigger note_added_or_dropped after insert or delete on evervec.versions
for each row execute function evervec.note_versions();

create trigger note_changed
after update of state, name, provider, model, dimensions, chunker, app, cut_since
on evervec.versions
for each row execute function evervec.note_versions();

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
    position text,                  -- the key up to which old rows are enqueued; null: all
    -- A row whose key or tenant cannot be a record's is set aside: an example of such a row's id (null:
    -- none is known), and how many were set aside since the first.
    unfit text,
    times_unfit bigint not null default 0
);

-- Rows live for a moment, and nobody looks for one of them, so there is no index to keep.
create table evervec.changes (
    kind text collate "C" not null,
    tenant text collate "C",
    id text collate "C"
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- A publication for all tables lets only rows be deleted that can be told apart.
alter table evervec.changes replica identity full;

-- A row changes twice in its life. No index is on what a worker writes, and a page has room for its rows
-- as they will be once they are done: they are updated in place, without touching an index.
create table evervec.jobs (
    job_id bigint primary key,
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
    -- The seq of the add that filled the box: the record that comes out of it is no newer, however often
    -- its job was asked for again since. Without one it is the job's own.
    box_seq bigint,
    trace text,                     -- the caller's (W3C traceparent), which the worker goes on with
    -- does not change when a claimed job is done
    failed_at double precision
        generated always as (case when status = 'failed' then completed_at end) stored,
    unique (record, version)
) with (
    fillfactor = 40,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

create index jobs_failed on evervec.jobs (failed_at, tenant) where failed_at is not null;
-- of a range of pages it knows the first and the last, which hardly ever changes
create index jobs_completed on evervec.jobs using brin (completed_at);

-- The jobs that can be claimed, in a narrow table: triggers on `jobs` keep it in step. They stand by
-- tenant, and by priority within a tenant (`rank`: the lowest first). Those that are not due yet stand
-- apart (`later`), and cost nothing until a claim finds that their time has come.
create table evervec.ready (
    job_id bigint not null,
    version bigint not null,
    scheduled_for double precision not null,
    crashes integer not null,
    tenant text collate "C" not null,
    op text collate "C" not null,
    later boolean not null,
    rank bigint not null
) with (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

create unique index ready_order on evervec.ready (later, tenant, rank, scheduled_for, job_id);
create index ready_later on evervec.ready (scheduled_for) where later;
alter table evervec.ready replica identity using index ready_order;

-- One row for all jobs of a claim. A claim deletes rows of `ready` and leaves the jobs as they are: this
-- row says who holds them, until there is more to write about one of them than that it is done.
-- No lease of its jobs ends before `expires_at`. A row goes when `held` reaches zero, or once its time
-- has come and none of its jobs is held any more.
create table evervec.claims (
    token text collate "C" primary key,
    worker text not null default '',
    started_at double precision not null,
    expires_at double precision not null,
    leased_until double precision not null default 0,
    held integer not null,
    job_ids bigint[] not null default '{}',  -- leased by this row alone, in order
    seqs bigint[] not null default '{}',     -- of each of them, when it was claimed
    written bigint[] not null default '{}'   -- those whose own rows say that they are leased, or did
) with (fillfactor = 50);

-- Written once and seldom read: to compress them costs more than it saves.
alter table evervec.claims
    alter column job_ids set storage external,
    alter column seqs set storage external,
    alter column written set storage external;

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
    -- For an index outside the store. `fence` is the number that the record's points carry there (null:
    -- its seq). `doubt` is the fence of a write that began and was not finished, so the index may hold
    -- other points than this entry says (null: no such write).
    fence bigint,
    doubt bigint,
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
    revoked_at double precision,
    -- Of a token, which is a key with a short life: the key that it was made from, and as a JSON list the
    -- kinds that it is for (null: all).
    parent text,
    kinds text
);

create index keys_of_parent on evervec.keys (parent, created_at) where parent is not null;

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

-- Tenants whose jobs are not claimed; the empty name stands for all.
create table evervec.pauses (
    tenant text collate "C" primary key
);

-- Tenants whose jobs wait because what they may use in a day is used up.
create table evervec.holds (
    tenant text collate "C" primary key,
    until double precision not null
);

-- The audit log: who did what, from where, and what became of it.
create table evervec.audit (
    entry bigint generated always as identity primary key,
    noted_at double precision not null,
    key_id text,                     -- null: nobody with a key
    agent text not null,
    tenant text not null,            -- *: all
    action text not null,
    target text not null,
    outcome text not null,
    request_id text,
    client text                      -- an address
);

create index audit_at on evervec.audit (noted_at);
