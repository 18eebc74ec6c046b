-- Jobs: enqueue, finish, fail, and bulk operations.

-- name: versions_stamp
-- there are no triggers to change a number
select coalesce(bit_xor(hash(
    v.version, v.kind, v.state, v.chunker, v.app, v.cut_since, v.name, v.provider, v.model,
    v.dimensions, k.base, k.gain, k.days)), 0)
from evervec_versions as v left join evervec_kinds as k on k.kind = v.kind

-- name: finish_untouched
-- jobs that did not change since their claim
update evervec_jobs as j
set status = 'done', box = null, finished_seq = j.claimed_seq, completed_at = $2,
    lease_expires_at = null, error = null, crashes = 0
from rows($3 job_id bigint, seq bigint) as n
where j.job_id = n.job_id and j.token = $1 and j.status = 'processing'
    and j.seq = j.claimed_seq and j.claimed_seq = n.seq
returning j.job_id

-- name: add_done_attempts
-- one statement for the whole batch
insert into evervec_attempts
    (record, tenant, version, attempt, seq, started_at, finished_at, outcome, chunks_embedded,
     chunks_reused, tokens, worker, embedded_at)
select j.record, j.tenant, j.version, j.attempts, j.claimed_seq, j.started_at, j.completed_at,
       'done', n.embedded, n.reused, n.tokens, n.worker, n.embedded_at
from rows($1 job_id bigint, embedded bigint, reused bigint, tokens bigint, worker text,
          embedded_at double) as n
join evervec_jobs as j on j.job_id = n.job_id

-- name: put_ledger
-- the table has no unique index
merge into evervec_ledger as l
using rows($1 record bigint, version bigint, seq bigint, chunks bytea, fence bigint) as n
on l.record = n.record and l.version = n.version
when matched and n.seq >= l.seq then
    update set seq = n.seq, chunks = n.chunks, fence = n.fence, doubt = null
when not matched then
    insert (record, version, seq, chunks, fence)
    values (n.record, n.version, n.seq, n.chunks, n.fence)

-- name: retry_failed
-- a scan: there is no index for it
update evervec_jobs
set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
    scheduled_for = $1
where status = 'failed' and ($2::varchar is null or tenant = $2)
    and ($3::bigint is null or attempts < $3)
