-- All objects are in the schema `evervec`. Names are compared byte by byte, as everywhere in evervec,
-- regardless of the database's locale.
-- `queue.sql` has the triggers of the queue, `claim_functions.sql` the functions for claims,
-- `queue_in_sql.sql` the queue for programs in other languages, and `usage.sql` the limits and usage
-- of tenants.

create table evervec.meta (
    key text collate "C" primary key,
    value bigint
);

insert into evervec.meta (key, value) values ('schema', 0);

-- One sequence for seq, record and job numbers. It does not cache: a session with cached numbers
-- would give a later change the smaller number.
create sequence evervec.numbers cache 1;

-- The clock for leases and schedules. Tests replace this function.
create function evervec.now_seconds() returns double precision
language sql volatile parallel safe
return extract(epoch from clock_timestamp())::double precision;

-- for a live record: the stems of title, text and tenant; see `full_text.py`
alter table evervec.records add column words tsvector;
create index records_words on evervec.records using gin (words) where state = 'live';

-- A random number that changes with any change of a kind's rescoring or of versions, except the time
-- of their last write.
-- Caches of the versions compare it. (A sequence would repeat its numbers after a restore.)
insert into evervec.meta (key, value) values ('versions', 0);

create function evervec.note_versions() returns trigger
language plpgsql
as $$
begin
    update evervec.meta set value = (random() * 9e15)::bigint where key = 'versions';
    return null;
end
$$;

-- Two callers may begin a kind at once, and the name does not tell: the first one's version may get
-- its model's name while the second waits.
create unique index versions_serving on evervec.versions (kind) where state = 'serving';

create trigger note_added_or_dropped after insert or delete on evervec.versions
for each row execute function evervec.note_versions();

create trigger note_kinds after insert or update on evervec.kinds
for each row execute function evervec.note_versions();

create trigger note_changed
after update of state, name, provider, model, dimensions, chunker, app, cut_since
on evervec.versions
for each row execute function evervec.note_versions();

-- The keys that the triggers of attached tables log. Rows are short-lived and never looked up one by one, so the table has no index.
create table evervec.changes (
    kind text collate "C" not null,
    tenant text collate "C",
    id text collate "C"
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- With a publication for all tables, PostgreSQL deletes only from tables with a replica identity.
alter table evervec.changes replica identity full;

-- an indexed column that does not change when a claimed job is done
alter table evervec.jobs add column failed_at double precision
    generated always as (case when status = 'failed' then completed_at end) stored;
create index jobs_failed on evervec.jobs (failed_at, tenant) where failed_at is not null;
create index jobs_failed_of on evervec.jobs (tenant, failed_at) where failed_at is not null;
create index jobs_alike on evervec.jobs (fingerprint, tenant, job_id) where failed_at is not null;

-- The attempt that finished a done job is in the job's own row, so that a finish writes no second
-- one: `embedded` is not null. It is copied to `attempts` when the job is enqueued again, or is
-- deleted before the attempt is old.
alter table evervec.jobs add column embedded integer, add column reused integer,
    add column tokens integer, add column embedded_at double precision;

create view evervec.current_attempts as
select number, record, tenant, version, attempt, seq, started_at, finished_at, outcome,
       chunks_embedded, chunks_reused, tokens, worker, error, embedded_at
from evervec.attempts
union all
select null, record, tenant, version, attempts, finished_seq, started_at, completed_at, 'done',
       embedded, reused, tokens, worker, null, embedded_at
from evervec.jobs
where status = 'done' and embedded is not null;

create function evervec.note_attempt(job evervec.jobs) returns void
language sql
as $$
    insert into evervec.attempts
        (record, tenant, version, attempt, seq, started_at, finished_at, outcome, chunks_embedded,
         chunks_reused, tokens, worker, embedded_at)
    select job.record, job.tenant, job.version, job.attempts, job.finished_seq, job.started_at,
           job.completed_at, 'done', job.embedded, job.reused, job.tokens, job.worker,
           job.embedded_at
    where job.status = 'done' and job.embedded is not null;
$$;

-- The jobs that can be claimed, in a narrow table that triggers on `jobs` keep in step. They are
-- ordered by tenant, and by priority within a tenant (`rank`: the lowest first). Jobs that are not
-- due yet are kept apart (`later`), and cost nothing until a claim finds that they are due.
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

-- One row for all jobs of a claim. A claim deletes rows of `ready` and does not change the jobs:
-- this row holds their lease until a job's own row must record something other than that it is
-- done. No lease of its jobs expires before `expires_at`. The row is deleted when `held` reaches
-- zero, or when `expires_at` has passed and none of its jobs is held.
create table evervec.claims (
    token text collate "C" primary key,
    worker text not null default '',
    started_at double precision not null,
    expires_at double precision not null,
    leased_until double precision not null default 0,
    held integer not null,
    job_ids bigint[] not null default '{}',  -- jobs whose lease is only in this row, sorted
    seqs bigint[] not null default '{}',     -- the seq of each of them when it was claimed
    written bigint[] not null default '{}',  -- jobs whose lease was written to their own rows
    first_job bigint generated always as (job_ids[1]) stored,
    last_job bigint generated always as (job_ids[cardinality(job_ids)]) stored
) with (fillfactor = 50);

-- Not compressed: they are written once and rarely read, so compression costs more than it saves.
alter table evervec.claims
    alter column job_ids set storage external,
    alter column seqs set storage external,
    alter column written set storage external;

create index claims_expire on evervec.claims (expires_at);

alter table evervec.attempts replica identity full;  -- as for changes: the table has no key

-- The store's own index has a table `points_<version>` for each collection, created with its first
-- vector. This table holds the tombstones that reject late writes.
create table evervec.removals (
    version bigint not null,
    record bigint not null,
    seq bigint not null,
    primary key (version, record)
);
