-- Jobs: enqueue, finish, fail, and operations on many jobs.

-- name: try_write
-- changes nothing, and is rolled back
update evervec_meta set value = value where key = 'counter'

-- name: take_numbers
update evervec_meta set value = value + ? where key = 'counter' returning value

-- name: loaded_kinds
-- the kinds whose rows come from a loader or an attached table
select value from json_each(?) as wanted
where exists (select 1 from evervec_versions as v where v.kind = wanted.value and v.app = 1)
    or exists (select 1 from evervec_attached as a where a.kind = wanted.value)

-- name: touch_versions
update evervec_versions set last_sync_at = ?
where version in (select value from json_each(?))

-- name: insert_stubs
insert into evervec_records
    (record, tenant, kind, id, state, seq, born, weight, created_at, updated_at, metadata, text)
select ?1 + ?2 * key, ?3, ?4, value, 'hidden', ?1 + ?2 * key, ?1 + ?2 * key, 1.0, ?5, ?5, '{}', ''
from json_each(?6)

-- name: insert_loads
insert into evervec_jobs
    (job_id, record, version, tenant, op, status, priority, scheduled_for, seq, max_attempts,
     created_at, later)
select ?1 + ?2 * key + ?3, ?1 + ?2 * key, ?4, ?5, 'load', 'pending', ?6, ?7, ?1 + ?2 * key, ?8, ?9,
       ?7 > ?9
from json_each(?10)

-- name: insert_record
insert into evervec_records
    (tenant, kind, record, id, state, seq, born, hash, weight, created_at, updated_at, version,
     title, metadata, data, text)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)

-- name: update_record
update evervec_records
set state = ?3, seq = ?4, born = ?5, hash = ?6, weight = ?7, created_at = ?8, updated_at = ?9,
    version = ?10, title = ?11, metadata = ?12, data = ?13, text = ?14
where record = ?1

-- name: delete_record
update evervec_records
set state = 'deleted', seq = ?2, hash = null, updated_at = ?1, title = null, metadata = '{}',
    data = null, text = ''
where record = ?3

-- name: index_text
insert into evervec_text (rowid, scope, title, text) values (?, ?, ?, ?)

-- name: put_job
insert into evervec_jobs
    (tenant, created_at, job_id, record, version, op, status, priority, scheduled_for, later, seq,
     max_attempts, box, box_seq, trace)
values (?1, ?2, ?3, ?4, ?5, ?6, 'pending', ?7, ?8, ?8 > ?2, ?9, ?10, ?11, ?12, ?13)
on conflict (record, version) do update set
    op = excluded.op,
    seq = excluded.seq,
    box = excluded.box,
    box_seq = excluded.box_seq,
    trace = excluded.trace,
    max_attempts = excluded.max_attempts,
    priority = case
        when status in ('pending', 'processing') then max(priority, excluded.priority)
        else excluded.priority end,
    -- a pending job, or a claimed one that changed since its claim, is not postponed
    scheduled_for = case
        when status = 'pending' or status = 'processing' and seq > claimed_seq
            then min(scheduled_for, excluded.scheduled_for)
        else excluded.scheduled_for end,
    later = case
        when status = 'pending' or status = 'processing' and seq > claimed_seq
            then later and excluded.later
        else excluded.later end,
    attempts = iif(status = 'processing', attempts, 0),
    crashes = iif(status = 'processing', crashes, 0),
    error = iif(status = 'processing', error, null),
    completed_at = iif(status = 'processing', completed_at, null),
    status = iif(status = 'processing', 'processing', 'pending')

-- name: job_columns
j.job_id, j.tenant, r.kind, r.id, j.version, j.op, j.seq, j.claimed_seq, j.status, j.priority,
j.attempts, j.max_attempts, j.error, j.token, j.created_at, j.scheduled_for, j.started_at,
j.completed_at, j.lease_expires_at, j.record, j.worker, j.crashes
from evervec_jobs as j
cross join evervec_records as r on r.record = j.record

-- name: versions_stamp
-- differs after any change of versions; set by triggers
select value from evervec_meta where key = 'versions'

-- name: standing
select job_id, status, op, seq, claimed_seq, finished_seq, token, attempts, max_attempts, crashes,
       box is not null, priority, scheduled_for, error, completed_at, started_at, lease_expires_at
from evervec_jobs
where job_id in (select value from json_each(?))

-- name: finish
update evervec_jobs
set status = iif(seq > ?2, 'pending', 'done'),
    attempts = iif(seq > ?2, 0, attempts),
    box = iif(seq > ?2, box, null),
    finished_seq = ?2, completed_at = ?1, lease_expires_at = null, error = null, crashes = 0
where job_id = ?3

-- name: finish_untouched
update evervec_jobs
set status = 'done', box = null, finished_seq = claimed_seq, completed_at = ?,
    lease_expires_at = null, error = null, crashes = 0
where job_id in (select value from json_each(?))
    and token = ? and status = 'processing' and seq = claimed_seq

-- name: add_done_attempts
insert into evervec_attempts
    (record, tenant, version, attempt, seq, started_at, finished_at, outcome, chunks_embedded,
     chunks_reused, tokens, worker)
select record, tenant, version, attempts, claimed_seq, started_at, completed_at, 'done', ?, ?, ?, ?
from evervec_jobs
where job_id in (select value from json_each(?))

-- name: reveal_state
select record, state, seq, created_at, version, born from evervec_records
where record in (select value from json_each(?))

-- name: born
select record, iif(state = 'deleted', seq, born) from evervec_records
where record in (select value from json_each(?))

-- name: put_ledger
insert into evervec_ledger (record, version, seq, chunks, fence) values (?, ?, ?, ?, ?)
on conflict (record, version) do update
    set seq = excluded.seq, chunks = excluded.chunks, fence = excluded.fence, doubt = null
where excluded.seq >= seq

-- name: doubt_ledger
-- mark entries in doubt before a write to an index outside the store
update evervec_ledger set doubt = ?
where (record, version) in (
    select record, version from evervec_jobs where job_id in (select value from json_each(?)))

-- name: drop_ledger
delete from evervec_ledger where record = ? and version = ? and seq <= ?

-- name: add_attempts
insert into evervec_attempts
    (record, tenant, version, attempt, seq, started_at, finished_at, outcome, chunks_embedded,
     chunks_reused, tokens, worker, error)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_back
update evervec_jobs
set status = ?, scheduled_for = ?, attempts = ?, crashes = ?, error = ?,
    completed_at = ?, token = null, lease_expires_at = null, later = 1
where job_id = ?

-- name: raise_counter
update evervec_meta set value = max(value, ?) where key = 'counter'

-- name: expired
where j.status = 'processing' and j.lease_expires_at < ?1 and (?2 is null or j.tenant = ?2)
order by j.lease_expires_at
limit ?3

-- name: stuck
where j.status = 'processing' and (j.lease_expires_at < ?1 or j.started_at < ?4)
    and (?2 is null or j.tenant = ?2)
order by j.lease_expires_at
limit ?3

-- name: retry_one
update evervec_jobs
set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
    scheduled_for = ?, later = 0
where job_id = ? and status = 'failed'

-- name: retry_failed
update evervec_jobs
set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
    scheduled_for = ?1, later = 0
where job_id in (
    select job_id from evervec_jobs
    where status = 'failed' and (?2 is null or tenant = ?2) and (?3 is null or attempts < ?3))

-- name: purge_jobs
delete from evervec_jobs
where job_id in (
    select job_id from evervec_jobs
    where status = ?1 and completed_at < ?2 and (?3 is null or tenant = ?3) and (?4 or box is null)
    order by completed_at
    limit ?5)
returning record

-- name: orphans
-- jobs of versions that do not exist
select job_id from evervec_jobs
where status = 'pending' and version not in (select version from evervec_versions)
union all
select job_id from evervec_jobs
where status = 'failed' and version not in (select version from evervec_versions)
limit ?1

-- name: forsake
-- mark records deleted that never appeared and have no job that could make them appear
update evervec_records set state = 'deleted'
where record in (select value from json_each(?)) and state = 'hidden'
    and not exists (select 1 from evervec_jobs as j where j.record = evervec_records.record)

-- name: purge_attempts
delete from evervec_attempts
where number in (
    select number
    from (select number, finished_at from evervec_attempts order by number limit ?2)
    where finished_at < ?1)

-- name: purge_removed
delete from evervec_removed
where removal in (
    select removal from (select removal, removed_at from evervec_removed order by removal limit ?2)
    where removed_at < ?1)
returning removal

-- name: removals_purged
update evervec_meta set value = max(value, ?) where key = 'removals_purged'

-- name: forgotten
select r.record from evervec_records as r
where r.state = 'deleted' and r.updated_at < ?
    and not exists (select 1 from evervec_jobs as j where j.record = r.record)
order by r.updated_at
limit ?

-- name: forget_points
delete from evervec_points where record in (select value from json_each(?))

-- name: count_new
insert into evervec_usage (tenant, kind, records, bytes) values (?, ?, ?, ?)
on conflict do update set records = records + excluded.records, bytes = bytes + excluded.bytes

-- name: reopen
select r.record, r.tenant, r.kind, r.state
from json_each(?1) as wanted
cross join evervec_records as r on r.record = wanted.value
where exists (select 1 from evervec_versions as v where v.version = ?2 and v.state <> 'retired')

-- name: add_note
insert into evervec_notes (name, value, revision) values (?, ?, ?) on conflict do nothing
