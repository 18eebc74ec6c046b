-- For an index outside of the store. `fence` is the number that the record's points carry there
-- (null: its seq). `doubt` is the fence of a write that began and was not finished, so the index
-- may hold other points than the entry says (null: no such write).
alter table evervec.ledger add column fence bigint;
alter table evervec.ledger add column doubt bigint;

-- From which number on a worker looks, when it starts, for records that lost their jobs.
insert into evervec.notes (name, value, revision)
select 'records without jobs', '0', 1 where exists (select 1 from evervec.records);

-- Dead letters in plain SQL: one, or all that were tried less often than `max_attempts`. They start
-- from zero, as after `evervec retry`.
create function evervec.retry_embedding_queue_item(job bigint) returns boolean
language sql
as $$
    with retried as (
        update evervec.jobs as j
        set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
            scheduled_for = evervec.now_seconds()
        where j.job_id = job and j.status = 'failed'
        returning 1)
    select exists (select 1 from retried)
$$;

create function evervec.retry_failed_embedding_queue_items(max_attempts integer default null)
returns bigint
language sql
as $$
    with dead as materialized (
        select j.job_id from evervec.jobs as j
        where j.failed_at is not null
            and ($1 is null or j.attempts < $1)
        order by j.job_id
        for update),
    retried as (
        update evervec.jobs as j
        set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
            scheduled_for = evervec.now_seconds()
        from dead
        where j.job_id = dead.job_id
        returning 1)
    select count(*) from retried
$$;

-- A row of an attached table whose key or tenant cannot be a record's is set aside: an example of
-- such a row's id (null: none is known), and how many were set aside since the first.
alter table evervec.attached add column unfit text;
alter table evervec.attached add column times_unfit bigint not null default 0;

-- A claim gives access to what a job is about: for a boxed record that is in its box.
create or replace function evervec.claim_embedding_queue_items(
    max_items integer,
    lease_seconds double precision default 60,
    worker_name text default 'sql'
) returns table (
    job_id bigint, token text, tenant text, kind text, record_id text, op text, seq bigint,
    title text, body text, metadata text, attempts integer, max_attempts integer,
    lease_expires_at double precision
)
language plpgsql
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    now double precision := evervec.now_seconds();
    due tid[];
    made text := replace(gen_random_uuid()::text, '-', '');
begin
    select d.places into due from evervec.next_jobs(max_items, now, null, 0) as d;
    if due = '{}' then  -- a suspect comes alone
        select d.places into due from evervec.next_jobs(1, now) as d;
    end if;
    return query
        select t.job_id, made, t.tenant, t.kind, t.id, t.op, t.seq,
               case when j.box is null then r.title else j.box::json ->> 'title' end,
               case when j.box is null then r.text else j.box::json ->> 'text' end,
               case when j.box is null then r.metadata else j.box::json ->> 'metadata' end,
               t.attempts + 1, t.max_attempts, now + lease_seconds
        from evervec.take_jobs(made, worker_name, now, now + lease_seconds, due) as t
        join evervec.records as r on r.record = t.record
        join evervec.jobs as j on j.job_id = t.job_id
        order by t.priority desc, t.scheduled_for, t.job_id;
end
$$;

-- A boxed record, or a row that a loader or an attached table gives, would be lost with its job:
-- only a worker of evervec, which lets the record appear, may finish those.
create or replace function evervec.finish_embedding_queue_item(job bigint, given_token text)
returns boolean
language plpgsql
as $$
declare
    now double precision := evervec.now_seconds();
    held evervec.jobs;
begin
    perform evervec.write_leases(array[given_token], array[job]);
    select j.* into held from evervec.jobs as j
    where j.job_id = job and j.token = given_token and j.status = 'processing' for update;
    if not found then  -- it came before, and its answer was lost; or the lease was
        return exists (
            select 1 from evervec.jobs as j
            where j.job_id = job and j.token = given_token and j.finished_seq >= j.claimed_seq);
    end if;
    if held.op = 'open' or held.op = 'load' and exists (
        select 1 from evervec.versions as v
        where v.version = held.version and (
            v.app = 1 or exists (select 1 from evervec.attached as a where a.kind = v.kind))) then
        raise exception 'job % has a record that is not read yet (op %), which would be lost', job,
            held.op
        using errcode = 'object_not_in_prerequisite_state',
            hint = 'Give it back with evervec.release_embedding_queue_item: a worker of evervec '
                'embeds it and lets it appear.';
    end if;
    update evervec.jobs as j
    set status = case when j.seq > j.claimed_seq then 'pending' else 'done' end,
        attempts = case when j.seq > j.claimed_seq then 0 else j.attempts end,
        box = case when j.seq > j.claimed_seq then j.box end,
        finished_seq = j.claimed_seq, completed_at = now, lease_expires_at = null, error = null,
        crashes = 0
    where j.job_id = job;
    insert into evervec.attempts
        (record, tenant, version, attempt, seq, started_at, finished_at, outcome, worker)
    values (held.record, held.tenant, held.version, held.attempts, held.claimed_seq,
            held.started_at, now, 'done', held.worker);
    return true;
end
$$;

-- A token is a key of a short life: the key that it was made from, and as a JSON list the kinds that
-- it is for (null: all).
alter table evervec.keys add column parent text;
alter table evervec.keys add column kinds text;
create index keys_of_parent on evervec.keys (parent, created_at) where parent is not null;

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
