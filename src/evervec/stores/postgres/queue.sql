-- Which jobs wait, and which are held: see `ready` and `claims` in `schema.sql`.

-- Jobs in their current state, including leases that are only in the row of their claim. The claim is
-- looked up for each pending job, among those whose range of jobs includes it: in a large fleet the
-- claims together hold hundreds of thousands of jobs.
create view evervec.current_jobs as
select j.job_id, j.record, j.version, j.seq, coalesce(c.seq, j.claimed_seq) as claimed_seq,
       j.scheduled_for, j.created_at, coalesce(c.started_at, j.started_at) as started_at,
       j.completed_at, coalesce(c.leased_until, j.lease_expires_at) as lease_expires_at, j.priority,
       case when c.token is null then j.attempts else j.attempts + 1 end as attempts, j.crashes,
       j.max_attempts, j.tenant, j.op,
       case when c.token is null then j.status else 'processing' end as status,
       coalesce(c.token, j.token) as token, coalesce(c.worker, j.worker) as worker, j.error,
       j.failed_at
from evervec.jobs as j
left join lateral (
    select c.token, c.worker, c.started_at, c.leased_until,
           c.seqs[width_bucket(j.job_id, c.job_ids)] as seq
    from evervec.claims as c
    where j.status = 'pending' and j.job_id between c.first_job and c.last_job
        and c.job_ids[width_bucket(j.job_id, c.job_ids)] = j.job_id
    offset 0
) as c on true;

-- The jobs that are held, in their current state, found by their claims.
create view evervec.held_jobs as
select j.job_id, j.record, j.version, j.seq, h.seq as claimed_seq, j.scheduled_for, j.created_at,
       c.started_at, j.completed_at, c.leased_until as lease_expires_at, j.priority,
       j.attempts + 1 as attempts, j.crashes, j.max_attempts, j.tenant, j.op,
       'processing' as status, c.token, c.worker, j.error, j.failed_at
from evervec.claims as c
cross join unnest(c.job_ids, c.seqs) as h (job_id, seq)
join evervec.jobs as j on j.job_id = h.job_id and j.status = 'pending'
union all
select j.job_id, j.record, j.version, j.seq, j.claimed_seq, j.scheduled_for, j.created_at,
       j.started_at, j.completed_at, j.lease_expires_at, j.priority, j.attempts, j.crashes,
       j.max_attempts, j.tenant, j.op, j.status, j.token, j.worker, j.error, j.failed_at
from evervec.jobs as j
where j.job_id = any (array(select unnest(c.written) from evervec.claims as c))
    and j.status = 'processing';

-- The jobs that are not done, found without reading those that are: pending jobs are in `ready` or in
-- a claim, processing ones in a claim. `version` and `op` are null where only the job's row has them.
-- A job may be there twice.
create view evervec.unfinished as
select job_id, version, op from evervec.ready
union all
select unnest(job_ids || written), null, null from evervec.claims
union all
select job_id, version, op from evervec.jobs where failed_at is not null;

-- Triggers that keep `ready` in step with the pending jobs.
create function evervec.follow_new_jobs() returns trigger
language plpgsql
as $$
declare
    now double precision := evervec.now_seconds();
begin
    insert into evervec.ready (job_id, version, scheduled_for, rank, crashes, tenant, op, later)
    select job_id, version, scheduled_for, -priority::bigint, crashes, tenant, op,
           scheduled_for > now
    from new_jobs where status = 'pending';
    insert into evervec.job_changes (tenant, version, ready, open, done, failed)
    select tenant, version, count(*) filter (where status = 'pending'),
           count(*) filter (where status in ('pending', 'processing')),
           count(*) filter (where status = 'done'), count(*) filter (where status = 'failed')
    from new_jobs group by tenant, version;
    return null;
end
$$;

create function evervec.follow_changed_job() returns trigger
language plpgsql
set enable_seqscan = off
as $$
declare
    is_later boolean := new.scheduled_for > evervec.now_seconds();
    is_new integer;
    was_done integer := (old.status = 'done')::integer;
    was_failed integer := (old.status = 'failed')::integer;
begin
    if old.status <> 'pending' then
        perform evervec.note_attempt(old);
        insert into evervec.ready (job_id, version, scheduled_for, rank, crashes, tenant, op, later)
        values (new.job_id, new.version, new.scheduled_for, -new.priority::bigint, new.crashes, new.tenant,
                new.op, is_later)
        on conflict do nothing;
        get diagnostics is_new = row_count;
        insert into evervec.job_changes (tenant, version, ready, open, done, failed)
        values (new.tenant, new.version, is_new, was_done + was_failed, -was_done, -was_failed);
    else  -- lock its row in `ready`, which a claimed job does not have
        perform 1 from evervec.ready as q
        where q.later in (false, true) and (q.tenant, q.rank, q.scheduled_for, q.job_id)
            = (old.tenant, -old.priority::bigint, old.scheduled_for, old.job_id)
        for update;
        if not found then
            return null;
        end if;
        if (new.priority, new.scheduled_for, new.crashes, new.op)
            <> (old.priority, old.scheduled_for, old.crashes, old.op) then
            update evervec.ready as q
            set rank = -new.priority::bigint, scheduled_for = new.scheduled_for, crashes = new.crashes,
                op = new.op, later = is_later
            where q.later in (false, true) and (q.tenant, q.rank, q.scheduled_for, q.job_id)
                = (old.tenant, -old.priority::bigint, old.scheduled_for, old.job_id);
        end if;
    end if;
    return null;
end
$$;

create function evervec.follow_dropped_jobs() returns trigger
language plpgsql
set enable_seqscan = off
as $$
begin
    with gone as (
        delete from evervec.ready as q using old_jobs as o
        where o.status = 'pending' and q.later in (false, true)
            and (q.tenant, q.rank, q.scheduled_for, q.job_id)
            = (o.tenant, -o.priority::bigint, o.scheduled_for, o.job_id)
        returning q.tenant, q.version)
    insert into evervec.job_changes (tenant, version, ready, open, done, failed)
    select tenant, version, -count(*) filter (where status is null),
           -count(*) filter (where status in ('pending', 'processing')),
           -count(*) filter (where status = 'done'), -count(*) filter (where status = 'failed')
    from (
        select tenant, version, status from old_jobs
        union all
        select tenant, version, null from gone) as o
    group by tenant, version;
    return null;
end
$$;

create function evervec.count_failed_job() returns trigger
language plpgsql
as $$
begin
    insert into evervec.job_changes (tenant, version, open, done, failed)
    values (new.tenant, new.version, case when old.status = 'done' then 0 else -1 end,
            case when old.status = 'done' then -1 else 0 end, 1);
    return null;
end
$$;

create trigger follow_new after insert on evervec.jobs
referencing new table as new_jobs
for each statement execute function evervec.follow_new_jobs();

create trigger follow_changed after update of status, scheduled_for, priority on evervec.jobs
for each row when (new.status = 'pending') execute function evervec.follow_changed_job();

create trigger count_failed after update of status on evervec.jobs
for each row when (new.status = 'failed' and old.status <> 'failed')
execute function evervec.count_failed_job();

create trigger follow_dropped after delete on evervec.jobs
referencing old table as old_jobs
for each statement execute function evervec.follow_dropped_jobs();
