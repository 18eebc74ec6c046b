-- Jobs: enqueue, finish, fail, and bulk operations.

-- name: now
select evervec.now_seconds()

-- name: take_numbers
-- the counter is a sequence
select nextval('evervec.numbers') from generate_series(1, $1::integer)

-- name: lock_counter
-- changes nothing, but takes the lock that stops other sessions from taking numbers
alter sequence evervec.numbers no cycle

-- name: last_number
select last_value from evervec.numbers

-- name: touch_versions
-- at most once a second, and without waiting for another worker that does the same
update evervec.versions set last_sync_at = $1
where version in (
    select version from evervec.versions
    where version = any ($2::bigint[]) and coalesce(last_sync_at, 0) < $1::double precision - 1
    for update skip locked)

-- name: finish_untouched
-- finishes jobs that did not change since their claim. Returns the finished jobs, or null if all
-- were finished. The ids are sorted, so that a job's position in the list is found without a join.
with now as materialized (select evervec.now_seconds() as now),
done as (
    update evervec.jobs as j
    set status = 'done', box = null, finished_seq = j.claimed_seq, completed_at = now.now,
        lease_expires_at = null, error = null, crashes = 0, worker = $2,
        embedded = coalesce(($4::integer[])[width_bucket(j.job_id, $3::bigint[])], 0),
        reused = coalesce(($5::integer[])[width_bucket(j.job_id, $3::bigint[])], 0),
        tokens = coalesce(($6::integer[])[width_bucket(j.job_id, $3::bigint[])], 0),
        embedded_at = $7::double precision
    from now
    -- coalesce hides from the planner how rare a token is: it would scan all jobs for the token
    where j.job_id = any ($3::bigint[])
        and coalesce(j.token = $1 and j.status = 'processing' and j.seq = j.claimed_seq, false)
    returning j.job_id, j.tenant, j.version, j.started_at, j.completed_at),
counted as (
    insert into evervec.job_changes (tenant, version, open, done, ended, seconds, last_done)
    select tenant, version, -count(*), count(*), count(*), sum(completed_at - started_at),
           max(completed_at)
    from done group by tenant, version),
ended as (select count(*) as count from done),
let_go as (
    update evervec.claims as c set held = c.held - ended.count::integer
    from ended where c.token = $1 and c.held > ended.count),
gone as (
    delete from evervec.claims as c using ended where c.token = $1 and c.held <= ended.count)
select case when ended.count < cardinality($3::bigint[]) then array(select job_id from done) end
from ended

-- name: finish
-- counts the jobs that are done
with ended as (
    update evervec.jobs as j
    set status = case when j.seq > n.seq then 'pending' else 'done' end,
        attempts = case when j.seq > n.seq then 0 else j.attempts end,
        box = case when j.seq > n.seq then j.box end,
        finished_seq = n.seq, completed_at = n.now, lease_expires_at = null, error = null,
        crashes = 0, embedded = null  -- the caller adds the attempt
    from rows($1 now double, seq bigint, job_id bigint) as n
    where j.job_id = n.job_id
    returning j.tenant, j.version, j.status, j.started_at, j.completed_at)
insert into evervec.job_changes (tenant, version, open, done, ended, seconds, last_done)
select tenant, version, -count(*), count(*), count(*), sum(completed_at - started_at),
       max(completed_at)
from ended where status = 'done' group by tenant, version

-- name: expired
-- leases are found by their claims; skips what another process recovers
select job_id from evervec.jobs
where job_id = any (array(
        select unnest(written) from evervec.claims where expires_at < $1 or started_at < $2))
    and status = 'processing' and (lease_expires_at < $1 or started_at < $2)
    and ($3::text is null or tenant = $3)
order by lease_expires_at
limit $4
for update skip locked

-- name: retry_failed
-- failed jobs are found by the partial index on `failed_at`
update evervec.jobs
set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
    scheduled_for = $1
where job_id = any (array(
    select job_id from evervec.jobs
    where failed_at is not null and ($2::text is null or tenant = $2)
        and ($3::bigint is null or attempts < $3)
    order by job_id
    for update)) and status = 'failed'

-- name: lock_job
select 1 from evervec.jobs where job_id = $1 for update

-- name: lock_place
-- locks the job's row in `ready`, once no other transaction changes it
select 1 from evervec.ready as q
join evervec.jobs as j
    on q.later in (false, true) and (q.tenant, q.rank, q.scheduled_for, q.job_id)
        = (j.tenant, -j.priority::bigint, j.scheduled_for, j.job_id)
where j.job_id = $1
for update of q

-- name: purge_jobs
-- failed jobs are found by the partial index on `failed_at`; skips what another process purges
delete from evervec.jobs
where job_id = any (array(
    select job_id from evervec.jobs
    where $1 = 'failed' and failed_at < $2
        and ($3::text is null or tenant = $3) and ($4::boolean or box is null)
    limit $5
    for update skip locked))
returning record

-- name: blocks
select pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint

-- name: leaves
-- the tables that hold the rows of a table: itself, or its partitions; and how many blocks each has
select c.relname::text, pg_relation_size(c.oid) / current_setting('block_size')::bigint
from pg_class as c
where c.relkind = 'r' and c.oid in (
    select $1::text::regclass
    union all
    select i.inhrelid from pg_inherits as i where i.inhparent = $1::text::regclass)
order by 1

-- name: purge_done
-- done jobs in a range of blocks of {leaf}; skips what another process has locked. Their attempts stay.
with gone as (
    delete from evervec.{leaf} as j
    where job_id = any (array(
        select job_id from evervec.{leaf}
        where ctid >= $1::text::tid and ctid < $2::text::tid and status = 'done'
            and completed_at < $3 and ($4::text is null or tenant = $4)
            and ($5::boolean or box is null)
        limit $6
        for update skip locked))
    returning j as job)
select evervec.note_attempt(job) from gone

-- name: drop_version_jobs
-- the last attempts of done jobs are in the rows of the jobs, and stay; $3: the jobs up to this
-- number were dropped before, so that they are not looked for again
with gone as (
    delete from evervec.jobs as j
    where job_id = any (array(
        select job_id from evervec.jobs where version = $1 and job_id > $3
        order by job_id limit $2))
    returning j as job)
select evervec.note_attempt(job), (job).job_id from gone

-- name: old_job
-- the first block of a range that has an old done job
select (ctid::text::point)[0]::bigint from evervec.{leaf}
where ctid >= $1::text::tid and ctid < $2::text::tid and status = 'done' and completed_at < $3
    and box is null
limit 1

-- name: old_attempt
-- the first block of a range that has an old attempt
select (ctid::text::point)[0]::bigint from evervec.{leaf}
where ctid >= $1::text::tid and ctid < $2::text::tid and finished_at < $3
limit 1

-- name: purge_old_jobs
-- old done jobs in a range of blocks, with the attempts in their rows
with gone as (
    delete from evervec.{leaf}
    where job_id = any (array(
        select job_id from evervec.{leaf}
        where ctid >= $1::text::tid and ctid < $2::text::tid and status = 'done'
            and completed_at < $3 and box is null
        for update skip locked))
    returning embedded)
select count(*), count(embedded) from gone

-- name: purge_old_attempts
delete from evervec.{leaf}
where ctid = any (array(
    select ctid from evervec.{leaf}
    where ctid >= $1::text::tid and ctid < $2::text::tid and finished_at < $3
    for update skip locked)) and finished_at < $3  -- were it split now, places would be of any part

-- name: orphans
-- pending jobs are in `ready`, failed ones are indexed; neither is read unless the counts have
-- jobs of versions that do not exist
with unknown as materialized (
    select c.version
    from (select version, ready, failed from evervec.job_counts where tenant = ''
          union all
          select version, ready, failed from evervec.job_changes) as c
    where not exists (select 1 from evervec.versions as v where v.version = c.version)
    group by c.version having sum(c.ready) > 0 or sum(c.failed) > 0)
select q.job_id from evervec.ready as q
where exists (select 1 from unknown) and q.version in (select version from unknown)
union all
select j.job_id from evervec.jobs as j
where exists (select 1 from unknown) and j.failed_at is not null
    and j.version in (select version from unknown)
limit $1

-- name: still_without_job
select r.record from evervec.records as r
where r.record = any ($1::bigint[])
    and not exists (select 1 from evervec.jobs as j where j.record = r.record)

-- name: forget_removals
delete from evervec.removals where record = any ($1::bigint[])

-- name: points_tables
select c.relname from pg_class as c
where c.relnamespace = 'evervec'::regnamespace and c.relkind in ('r', 'p') and c.relname ~ '^points_[0-9]+$'

-- name: horizon_holders
-- transactions that block vacuum: their process, their age, and an id that distinguishes them from
-- the next transaction of the same process. The age is hidden from roles that may not read all
-- statistics.
select 'process ' || pid || ', ' || coalesce(nullif(application_name, ''), 'no name'),
       extract(epoch from clock_timestamp() - xact_start)::double precision,
       coalesce(backend_xid, backend_xmin)::text
from pg_stat_activity
where coalesce(backend_xid, backend_xmin) is not null and datname = current_database()
    and pid <> pg_backend_pid() and usesysid is not null
    and coalesce(backend_type, 'client backend') = 'client backend'
union all
select 'prepared as ' || gid, extract(epoch from clock_timestamp() - prepared)::double precision, ''
from pg_prepared_xacts where database = current_database()
order by 2 desc nulls last

-- name: health
-- what evervec needs from a server, as this user sees it
select pg_is_in_recovery(),
       has_schema_privilege('evervec', 'create'),
       has_database_privilege(current_database(), 'create'),
       (select default_version from pg_available_extensions where name = 'vector'),
       (select extversion from pg_extension where extname = 'vector'),
       (select count(*) from pg_inherits where inhparent = 'evervec.records'::regclass),
       current_setting('max_locks_per_transaction')::integer

-- name: written
-- the database system, its timeline, and how much it has written
select (select system_identifier from pg_control_system()),
       ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer,
       (pg_current_wal_insert_lsn() - '0/0')::bigint

-- name: flush
-- a commit that changes nothing
select pg_logical_emit_message(true, 'evervec', '')

-- name: replayed
-- whether it is a replica; of which system, on which timeline at least, and how much it has replayed
select pg_is_in_recovery(), (select system_identifier from pg_control_system()),
       greatest((select timeline_id from pg_control_checkpoint()),
                (select min_recovery_end_timeline from pg_control_recovery())),
       coalesce(pg_last_wal_replay_lsn() - '0/0', 0)::bigint

-- name: backlog
-- the counts are kept: totals, and the changes that are not added to them yet
select coalesce(sum(ready), 0), coalesce(sum(open) - sum(ready), 0), coalesce(sum(failed), 0)
from (select ready, open, failed from evervec.job_counts where tenant = coalesce($1::text, '')
      union all
      select ready, open, failed from evervec.job_changes
      where $1::text is null or tenant = $1) as c

-- name: open_jobs
-- the counts are kept
select least(coalesce(sum(open), 0), $2::bigint)
from (select open from evervec.job_counts where tenant = '' and version = $1
      union all
      select open from evervec.job_changes where version = $1) as c

-- name: lock_jobs
-- in the order of their keys, so that two callers cannot deadlock
select 1 from evervec.jobs where job_id = any ($1::bigint[]) order by job_id for update

-- name: lock_places
-- locks the jobs' rows in `ready`, once no other transaction changes them
select 1 from evervec.ready as q
join evervec.jobs as j
    on q.later in (false, true) and (q.tenant, q.rank, q.scheduled_for, q.job_id)
        = (j.tenant, -j.priority::bigint, j.scheduled_for, j.job_id)
where j.job_id = any ($1::bigint[])
order by q.job_id
for update of q

-- name: latest_attempts
-- the last attempt of a done job is in the job's row, and has no number
select a.attempt, a.seq, a.worker, a.started_at, a.finished_at, a.outcome, a.error,
       a.chunks_embedded, a.chunks_reused, a.tokens, a.embedded_at, v.name as version_name
from evervec.current_attempts as a
left join evervec.versions as v on v.version = a.version
where a.record = $1 and a.version = $2 and a.finished_at >= $3
order by a.finished_at desc, a.number desc nulls first
limit $4
