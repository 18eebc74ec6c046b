-- Jobs: enqueue, finish, fail, and bulk operations.

-- name: try_write
-- writes the same value, and is rolled back
update evervec_meta set value = value where key = 'counter'

-- name: loaded_kinds
-- kinds whose rows come from a loader
select distinct kind from evervec_versions where list_contains($1::varchar[], kind) and app = 1

-- name: touch_versions
update evervec_versions set last_sync_at = $1 where version = any ($2::bigint[])

-- name: job_columns
j.job_id, j.tenant, r.kind, r.id, j.version, j.op, j.seq, j.claimed_seq, j.status, j.priority,
j.attempts, j.max_attempts, j.error, j.token, j.created_at, j.scheduled_for, j.started_at,
j.completed_at, j.lease_expires_at, j.record, j.worker, j.crashes
from evervec_jobs as j
join evervec_records as r on r.record = j.record

-- name: versions_stamp
select coalesce(bit_xor(hash(
    version, kind, state, chunker, app, cut_since, name, provider, model, dimensions)), 0)
from evervec_versions

-- name: standing
select job_id, status, op, seq, claimed_seq, finished_seq, token, attempts, max_attempts, crashes,
       box is not null, priority, scheduled_for, error, completed_at, started_at, lease_expires_at
from evervec_jobs
where job_id in (select unnest($1::bigint[]))

-- name: finish
update evervec_jobs as j
set status = case when j.seq > n.seq then 'pending' else 'done' end,
    attempts = case when j.seq > n.seq then 0 else j.attempts end,
    box = case when j.seq > n.seq then j.box end,
    finished_seq = n.seq, completed_at = n.now, lease_expires_at = null, error = null, crashes = 0
from (
    select unnest($1::double[]) as now, unnest($2::bigint[]) as seq,
           unnest($3::bigint[]) as job_id) as n
where j.job_id = n.job_id

-- name: finish_untouched
-- finishes jobs that did not change since their claim
update evervec_jobs as j
set status = 'done', box = null, finished_seq = j.claimed_seq, completed_at = $2,
    lease_expires_at = null, error = null, crashes = 0
from (select unnest($3::bigint[]) as job_id, unnest($4::bigint[]) as seq) as n
where j.job_id = n.job_id and j.token = $1 and j.status = 'processing'
    and j.seq = j.claimed_seq and j.claimed_seq = n.seq
returning j.job_id

-- name: add_done_attempts
insert into evervec_attempts
    (record, tenant, version, attempt, seq, started_at, finished_at, outcome, chunks_embedded,
     chunks_reused, tokens, worker)
select j.record, j.tenant, j.version, j.attempts, j.claimed_seq, j.started_at, j.completed_at,
       'done', n.embedded, n.reused, n.tokens, n.worker
from (
    select unnest($1::bigint[]) as job_id, unnest($2::bigint[]) as embedded,
           unnest($3::bigint[]) as reused, unnest($4::bigint[]) as tokens,
           unnest($5::varchar[]) as worker) as n
join evervec_jobs as j on j.job_id = n.job_id

-- name: reveal_state
select record, state, seq, created_at, version, born from evervec_records
where record in (select unnest($1::bigint[]))

-- name: born
select record, case when state = 'deleted' then seq else born end from evervec_records
where record in (select unnest($1::bigint[]))

-- name: put_ledger
merge into evervec_ledger as l
using (
    select unnest($1::bigint[]) as record, unnest($2::bigint[]) as version,
           unnest($3::bigint[]) as seq, unnest($4::blob[]) as chunks,
           unnest($5::bigint[]) as fence) as n
on l.record = n.record and l.version = n.version
when matched and n.seq >= l.seq then
    update set seq = n.seq, chunks = n.chunks, fence = n.fence, doubt = null
when not matched then
    insert (record, version, seq, chunks, fence)
    values (n.record, n.version, n.seq, n.chunks, n.fence)

-- name: doubt_ledger
-- a write to an index outside the store begins
update evervec_ledger as l set doubt = $1
from evervec_jobs as j
where j.job_id in (select unnest($2::bigint[])) and l.record = j.record and l.version = j.version

-- name: drop_ledger
delete from evervec_ledger as l
using (
    select unnest($1::bigint[]) as record, unnest($2::bigint[]) as version,
           unnest($3::bigint[]) as seq) as n
where l.record = n.record and l.version = n.version and l.seq <= n.seq

-- name: add_attempts
insert into evervec_attempts
    (record, tenant, version, attempt, seq, started_at, finished_at, outcome, chunks_embedded,
     chunks_reused, tokens, worker, error)
select unnest($1::bigint[]), unnest($2::varchar[]), unnest($3::bigint[]), unnest($4::bigint[]),
       unnest($5::bigint[]), unnest($6::double[]), unnest($7::double[]), unnest($8::varchar[]),
       unnest($9::bigint[]), unnest($10::bigint[]), unnest($11::bigint[]), unnest($12::varchar[]),
       unnest($13::varchar[])

-- name: put_back
update evervec_jobs as j
set status = n.status, scheduled_for = n.due, attempts = n.attempts,
    crashes = n.crashes, error = n.error, completed_at = n.completed_at, token = null,
    lease_expires_at = null
from (
    select unnest($1::varchar[]) as status, unnest($2::double[]) as due,
           unnest($3::bigint[]) as attempts, unnest($4::bigint[]) as crashes,
           unnest($5::varchar[]) as error, unnest($6::double[]) as completed_at,
           unnest($7::bigint[]) as job_id) as n
where j.job_id = n.job_id

-- name: expired
where j.status = 'processing' and j.lease_expires_at < $1
    and ($2::varchar is null or j.tenant = $2)
order by j.lease_expires_at
limit $3

-- name: stuck
where j.status = 'processing' and (j.lease_expires_at < $1 or j.started_at < $4)
    and ($2::varchar is null or j.tenant = $2)
order by j.lease_expires_at
limit $3

-- name: retry_one
update evervec_jobs
set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
    scheduled_for = $1
where job_id = $2 and status = 'failed'

-- name: retry_failed
update evervec_jobs
set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
    scheduled_for = $1
where status = 'failed' and ($2::varchar is null or tenant = $2)
    and ($3::bigint is null or attempts < $3)

-- name: purge_jobs
delete from evervec_jobs
where job_id in (
    select job_id from evervec_jobs
    where status = $1 and completed_at < $2 and ($3::varchar is null or tenant = $3)
        and ($4::boolean or box is null)
    order by completed_at
    limit $5)
returning record

-- name: orphans
-- jobs of versions that do not exist
select job_id from evervec_jobs
where status = 'pending' and version not in (select version from evervec_versions)
union all
select job_id from evervec_jobs
where status = 'failed' and version not in (select version from evervec_versions)
limit $1

-- name: forsake
-- a record that was never visible and has no job to make it visible is marked as deleted
update evervec_records as r set state = 'deleted'
where r.record in (select unnest($1::bigint[])) and r.state = 'hidden'
    and r.record not in (select j.record from evervec_jobs as j)

-- name: purge_attempts
delete from evervec_attempts
where number in (
    select number
    from (select number, finished_at from evervec_attempts order by number limit $2) as oldest
    where finished_at < $1)

-- name: purge_removed
delete from evervec_removed
where removal in (
    select removal
    from (select removal, removed_at from evervec_removed order by removal limit $2) as oldest
    where removed_at < $1)
returning removal

-- name: removals_purged
update evervec_meta set value = greatest(value, $1) where key = 'removals_purged'

-- name: forgotten
select r.record from evervec_records as r
where r.state = 'deleted' and r.updated_at < $1
    and r.record not in (select j.record from evervec_jobs as j)
order by r.updated_at
limit $2

-- name: forget_points
delete from evervec_points where record in (select unnest($1::bigint[]))

-- name: reopen
select r.record, r.tenant, r.kind, r.state
from evervec_records as r
where r.record in (select unnest($1::bigint[]))
    and exists (select 1 from evervec_versions as v where v.version = $2 and v.state <> 'retired')
order by r.record

-- name: add_note
insert into evervec_notes (name, value, revision)
select $1, $2, $3 where $1 not in (select name from evervec_notes)
