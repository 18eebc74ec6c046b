-- Jobs: enqueue, finish, fail, and operations on many jobs.

-- name: take_numbers
-- the counter is a row
update evervec_meta set value = value + ? where key = 'counter' returning value

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
    (tenant, created_at, later, job_id, record, version, op, priority, scheduled_for, seq,
     max_attempts, box, box_seq, trace, status)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, 'pending')
on conflict (record, version) do update set
    op = excluded.op,
    seq = excluded.seq,
    box = excluded.box,
    box_seq = excluded.box_seq,
    trace = excluded.trace,
    saved_at = excluded.created_at,
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

-- name: finish_untouched
-- all or none: the caller compares the number of rows
update evervec_jobs
set status = 'done', box = null, finished_seq = claimed_seq, completed_at = ?,
    lease_expires_at = null, error = null, crashes = 0
where job_id in (select value from json_each(?))
    and token = ? and status = 'processing' and seq = claimed_seq

-- name: add_done_attempts
-- one statement for all jobs with the same counts
insert into evervec_attempts
    (record, tenant, version, attempt, seq, started_at, finished_at, outcome, chunks_embedded,
     chunks_reused, tokens, worker, embedded_at)
select record, tenant, version, attempts, claimed_seq, started_at, completed_at, 'done', ?, ?, ?, ?,
       ?
from evervec_jobs
where job_id in (select value from json_each(?))

-- name: drop_ledger
-- SQLite has no `delete … using`
delete from evervec_ledger where record = ? and version = ? and seq <= ?

-- name: put_back
-- `later`: the next claim looks whether the job is due
update evervec_jobs
set status = ?, scheduled_for = ?, attempts = ?, crashes = ?, error = ?, fingerprint = ?,
    completed_at = ?, token = null, lease_expires_at = null, later = 1
where job_id = ?

-- name: raise_counter
update evervec_meta set value = max(value, ?) where key = 'counter'

-- name: retry_one
-- `later`: the job can be claimed at once
update evervec_jobs
set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
    scheduled_for = ?, later = 0
where job_id = ? and status = 'failed'

-- name: retry_many
-- `later`: the jobs can be claimed at once
update evervec_jobs
set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
    scheduled_for = ?1, later = 0
where job_id in (select value from json_each(?2)) and status = 'failed'

-- name: retry_failed
-- `later`: the jobs can be claimed at once
update evervec_jobs
set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
    scheduled_for = ?1, later = 0
where job_id in (
    select job_id from evervec_jobs
    where status = 'failed' and (?2 is null or tenant = ?2) and (?3 is null or attempts < ?3))

-- name: count_new
insert into evervec_usage (tenant, kind, records, bytes) values (?, ?, ?, ?)
on conflict do update set records = records + excluded.records, bytes = bytes + excluded.bytes
