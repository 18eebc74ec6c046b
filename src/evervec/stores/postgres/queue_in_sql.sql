-- The queue for programs in other languages: claim, then finish, fail, release or renew with the
-- token of the claim. Each function returns whether the token was still valid.

-- A claim also returns the record's content, which for a boxed record is read from its box.
create function evervec.claim_embedding_queue_items(
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
    made text := replace(gen_random_uuid()::text, '-', '');
    -- the turn continues within a session, and starts at a random tenant
    turn text := coalesce(nullif(current_setting('evervec.turn', true), ''), md5(made));
    most integer;
    any_crashes integer;
    claimed bigint[];
begin
    for most, any_crashes in values (max_items, 0), (1, 2147483647) loop
        -- a suspect is claimed alone
        with taken as materialized (
            select c.job_id, c.error from evervec.claim_jobs(
                made, worker_name, lease_seconds, most, null, any_crashes, turn => turn,
                anyway => true) as c)
        select array_agg(t.job_id) filter (where t.job_id is not null),
               max(t.error) filter (where t.job_id is null)::json ->> 4
        into claimed, turn
        from taken as t;
        exit when claimed is not null;
    end loop;
    perform set_config('evervec.turn', turn, false);
    return query
        select j.job_id, j.token, j.tenant::text, r.kind::text, r.id::text, j.op::text, j.seq,
               case when b.box is null then r.title else b.box::json ->> 'title' end,
               case when b.box is null then r.text else b.box::json ->> 'text' end,
               case when b.box is null then r.metadata else b.box::json ->> 'metadata' end,
               j.attempts, j.max_attempts, j.lease_expires_at
        from evervec.current_jobs as j
        join evervec.records as r on r.record = j.record
        join evervec.jobs as b on b.job_id = j.job_id
        where j.job_id = any (claimed)
        order by j.priority desc, j.scheduled_for, j.job_id;
end
$$;

-- A boxed record, or a row from a loader or an attached table, would be lost with its job. Only an
-- evervec worker, which makes the record visible, may finish such a job.
create function evervec.finish_embedding_queue_item(job bigint, given_token text)
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
    if not found then  -- a repeated call whose first answer was lost, or the lease was lost
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
        crashes = 0, embedded = null
    where j.job_id = job;
    if held.seq = held.claimed_seq then
        insert into evervec.job_changes (tenant, version, open, done, ended, seconds, last_done)
        values (held.tenant, held.version, -1, 1, 1, now - held.started_at, now);
    end if;
    insert into evervec.attempts
        (record, tenant, version, attempt, seq, started_at, finished_at, outcome, worker)
    values (held.record, held.tenant, held.version, held.attempts, held.claimed_seq,
            held.started_at, now, 'done', held.worker);
    return true;
end
$$;

-- With `retry_in` the job is retried after that many seconds, if attempts are left. Without it the
-- job becomes a dead letter. A change made after the claim keeps its own due time. Returns the new
-- status, or null if the token is no longer valid.
create function evervec.fail_embedding_queue_item(
    job bigint, given_token text, reason text, retry_in double precision default null
) returns text
language plpgsql
as $$
declare
    now double precision := evervec.now_seconds();
    held evervec.jobs;
    ended text;
begin
    perform evervec.write_leases(array[given_token], array[job]);
    select j.* into held from evervec.jobs as j
    where j.job_id = job and j.token = given_token and j.status = 'processing' for update;
    if not found then
        return null;
    end if;
    ended := case
        when held.seq > held.claimed_seq then 'pending'  -- a newer change starts with no attempts
        when retry_in is null or held.attempts >= held.max_attempts then 'failed'
        else 'pending' end;
    update evervec.jobs as j
    set status = ended, error = reason, fingerprint = null, token = null, lease_expires_at = null,
        attempts = case when j.seq > j.claimed_seq then 0 else j.attempts end,
        scheduled_for = case when j.seq > j.claimed_seq then j.scheduled_for
                             else now + case when ended = 'failed' then 0 else retry_in end end,
        completed_at = case when ended = 'failed' then now end
    where j.job_id = job;
    insert into evervec.attempts
        (record, tenant, version, attempt, seq, started_at, finished_at, outcome, worker, error)
    values (held.record, held.tenant, held.version, held.attempts, held.claimed_seq,
            held.started_at, now, case when ended = 'failed' then 'failed' else 'retry' end,
            held.worker, reason);
    return ended;
end
$$;

create function evervec.release_embedding_queue_item(job bigint, given_token text)
returns boolean
language sql
as $$
    select evervec.write_leases(array[given_token], array[job]);
    with given_back as (
        update evervec.jobs as j
        set status = 'pending', token = null, lease_expires_at = null,
            attempts = case when j.seq > j.claimed_seq then 0 else greatest(j.attempts - 1, 0) end
        where j.job_id = job and j.token = given_token and j.status = 'processing'
        returning 1)
    select exists (select 1 from given_back)
$$;

create function evervec.renew_embedding_queue_item(
    job bigint, given_token text, lease_seconds double precision
) returns boolean
language sql
as $$
    select evervec.write_leases(array[given_token], array[job]);
    with renewed as (
        update evervec.jobs as j
        set lease_expires_at = evervec.now_seconds() + lease_seconds
        where j.job_id = job and j.token = given_token and j.status = 'processing'
        returning 1),
    sooner as (  -- a renewal may shorten a lease
        update evervec.claims as c set expires_at = evervec.now_seconds() + lease_seconds
        where c.token = given_token and c.expires_at > evervec.now_seconds() + lease_seconds)
    select exists (select 1 from renewed)
$$;

-- Retry dead letters in plain SQL: one, or all with fewer attempts than `max_attempts`. Their
-- attempts are reset to zero, as by `evervec retry`.
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
