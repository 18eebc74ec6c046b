-- Jobs: enqueue, finish, fail, and operations on many jobs.
-- For all stores; `named.py` says in which form.

-- name: collections
select v.version, v.kind, v.state, v.chunker, v.app, v.cut_since, v.name, v.provider, v.model,
       v.dimensions, k.base, k.gain, k.days
from evervec_versions as v left join evervec_kinds as k on k.kind = v.kind
order by v.version

-- name: need_app
update evervec_versions set app = 1 where kind = $1 and app = 0

-- name: owed
-- what jobs still have to read; see `debt` in transitions.py. A retired version passes boxes on, but
-- no change reaches it: a row may have been replaced since
select j.record, j.op, j.box, coalesce(j.box_seq, j.seq) as box_seq
from evervec_jobs as j
where j.record in list($1) and j.op in ('load', 'open') and j.status <> 'done'
    and (j.op = 'open' or exists (
        select 1 from evervec_versions as v where v.version = j.version and v.state <> 'retired'))

-- name: drop_job
delete from evervec_jobs where job_id = $1

-- name: drop_jobs
delete from evervec_jobs where job_id in list($1)
returning record

-- name: set_priority
update evervec_jobs set priority = $1 where job_id = $2

-- name: forget_records
delete from evervec_records where record in list($1)

-- name: forget_ledger
delete from evervec_ledger where record in list($1)

-- name: pauses
-- tenants whose jobs are not claimed; the empty name means all tenants
select tenant from evervec_pauses order by tenant

-- name: pause
insert into evervec_pauses (tenant) values ($1) on conflict do nothing

-- name: resume
delete from evervec_pauses where tenant = $1

-- name: weights
select tenant, weight from evervec_tenants where weight <> 1

-- name: held_back
-- tenants whose jobs are not claimed: paused, or with the day's quota used up
select tenant from evervec_pauses
union
select tenant from evervec_holds where until > $1

-- name: jobs_by_id
where j.job_id in list($1)

-- name: note
select value, revision from evervec_notes where name = $1

-- name: set_note
update evervec_notes set value = $1, revision = revision + 1 where name = $2 and revision = $3

-- name: job_row
-- the columns of `JobValues`
job_id bigint, record bigint, version bigint, op text, priority integer, scheduled_for double,
seq bigint, max_attempts integer, box text, box_seq bigint, trace text

-- name: insert_jobs
-- jobs of records that have none
insert into evervec_jobs
    (job_id, record, version, tenant, op, status, priority, scheduled_for, seq, max_attempts,
     created_at, box, box_seq, trace)
select n.job_id, n.record, n.version, $1, n.op, 'pending', n.priority, n.scheduled_for, n.seq,
       n.max_attempts, $2, n.box, n.box_seq, n.trace
from rows($3 {job_row}) as n

-- name: finish
update evervec_jobs as j
set status = case when j.seq > n.seq then 'pending' else 'done' end,
    attempts = case when j.seq > n.seq then 0 else j.attempts end,
    box = case when j.seq > n.seq then j.box end,
    finished_seq = n.seq, completed_at = n.now, lease_expires_at = null, error = null, crashes = 0
from rows($1 now double, seq bigint, job_id bigint) as n
where j.job_id = n.job_id

-- name: put_back
update evervec_jobs as j
set status = n.status, scheduled_for = n.due, attempts = n.attempts, crashes = n.crashes,
    error = n.error, fingerprint = n.fingerprint, completed_at = n.completed_at, token = null,
    lease_expires_at = null
from rows($1 status text, due double, attempts integer, crashes integer, error text,
          fingerprint text, completed_at double, job_id bigint) as n
where j.job_id = n.job_id

-- name: add_attempts
insert into evervec_attempts
    (record, tenant, version, attempt, seq, started_at, finished_at, outcome, chunks_embedded,
     chunks_reused, tokens, worker, error, embedded_at)
select * from rows($1 record bigint, tenant text, version bigint, attempt integer, seq bigint,
                   started_at double, finished_at double, outcome text, embedded integer,
                   reused integer, tokens integer, worker text, error text,
                   embedded_at double) as n

-- name: put_ledger
insert into evervec_ledger as l (record, version, seq, chunks, fence)
select * from rows($1 record bigint, version bigint, seq bigint, chunks bytea, fence bigint) as n
on conflict (record, version) do update
    set seq = excluded.seq, chunks = excluded.chunks, fence = excluded.fence, doubt = null
where excluded.seq >= l.seq

-- name: drop_ledger
delete from evervec_ledger as l
using rows($1 record bigint, version bigint, seq bigint) as n
where l.record = n.record and l.version = n.version and l.seq <= n.seq

-- name: outdate_ledger
-- what other versions indexed while a box waited is older than the opened box: their entries get a
-- number below its seq. `fence` keeps the number of the points.
update evervec_ledger as l
set fence = coalesce(l.fence, l.seq), seq = n.seq - 1
from rows($1 record bigint, version bigint, seq bigint) as n
where l.record = n.record and l.version = n.version and l.seq >= n.seq

-- name: doubt_ledger
-- marks entries as in doubt before a write to an index outside the store
update evervec_ledger as l set doubt = $1
from evervec_jobs as j
where j.job_id in list($2) and l.record = j.record and l.version = j.version

-- name: reveal_state
select record, state, seq, created_at, version, born from evervec_records
where record in list($1)

-- name: born
select record, case when state = 'deleted' then seq else born end, seq from evervec_records
where record in list($1)

-- name: reopen
select r.record, r.tenant, r.kind, r.state
from evervec_records as r
where r.record in list($1)
    and exists (select 1 from evervec_versions as v where v.version = $2 and v.state <> 'retired')
order by r.record

-- name: count_status
select count(*) from evervec_jobs where status = $1 and ($2::text is null or tenant = $2)

-- name: last_done
select max(completed_at) from evervec_jobs
where status = 'done' and ($1::text is null or tenant = $1)

-- name: oldest_pending
select min(scheduled_for) from evervec_jobs
where status = 'pending' and ($1::text is null or tenant = $1)

-- name: waiting_since
select min(scheduled_for) from evervec_jobs
where status = 'pending' and priority > $1 and tenant not in (
    select tenant from evervec_pauses union all select tenant from evervec_holds)

-- name: unique_records
select count(distinct record)
from (select record, tenant from evervec_jobs where status = 'pending'
      union all
      select record, tenant from evervec_jobs where status = 'processing') as open
where $1::text is null or tenant = $1

-- name: recent_pace
select avg(finished_at - started_at)
from (select tenant, started_at, finished_at, outcome from evervec_attempts
      order by number desc limit 10000) as latest
where outcome = 'done' and ($1::text is null or tenant = $1)

-- name: purge_jobs
delete from evervec_jobs
where job_id in (
    select job_id from evervec_jobs
    where status = $1 and completed_at < $2 and ($3::text is null or tenant = $3)
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

-- name: standing
-- locks in the order of the keys, so that two bulk finishes cannot deadlock
select job_id, status, op, seq, claimed_seq, finished_seq, token, attempts, max_attempts, crashes,
       box is not null as boxed, priority, scheduled_for, error, completed_at, started_at, lease_expires_at
from evervec_jobs
where job_id in list($1)
order by job_id
for update

-- name: job_columns
j.job_id, j.tenant, r.kind, r.id, j.version, j.op, j.seq, j.claimed_seq, j.status, j.priority,
j.attempts, j.max_attempts, j.error, j.token, j.created_at, j.scheduled_for, j.started_at,
j.completed_at, j.lease_expires_at, j.record, j.worker, j.crashes
from evervec_current_jobs as j
cross join evervec_records as r on r.record = j.record

-- name: claim_columns
-- the columns that a lease does not overwrite, or whose new values follow from the old ones
j.job_id, j.tenant, r.kind, r.id, j.version, j.op, j.seq, j.priority, j.attempts, j.max_attempts,
j.error, j.created_at, j.scheduled_for, j.completed_at, j.record, j.crashes
from evervec_jobs as j
cross join evervec_records as r on r.record = j.record

-- name: touch_versions
update evervec_versions set last_sync_at = $1 where version in list($2)

-- name: try_write
-- writes the same value, and is rolled back
update evervec_meta set value = value where key = 'schema'

-- name: forget_points
delete from evervec_points where record in list($1)

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
update evervec_meta set value = case when value > $1 then value else $1 end
where key = 'removals_purged'

-- name: tombstones
select updated_at, record from evervec_records
where state = 'deleted' and updated_at < $1 and (updated_at, record) > ($2, $3)
order by updated_at, record
limit $4

-- name: forgotten
-- locks the records: a transaction that adds one of them again waits, and then finds no row. Those
-- of a followed kind keep their versions, which refuse older changes
select r.record from evervec_records as r
where r.record in list($1) and r.state = 'deleted' and r.updated_at < $2
    and not exists (select 1 from evervec_jobs as j where j.record = r.record)
    and (r.version is null or not exists (
        select 1 from evervec_streams as s where s.tenant = r.tenant and s.kind = r.kind))
for update of r skip locked

-- name: forsake
-- records that never appeared and have no job that could make them appear
update evervec_records as r set state = 'deleted'
where r.record in list($1) and r.state = 'hidden'
    and not exists (select 1 from evervec_jobs as j where j.record = r.record)

-- name: retry_one
update evervec_jobs
set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
    scheduled_for = $1
where job_id = $2 and status = 'failed'

-- name: add_note
insert into evervec_notes (name, value, revision) values ($1, $2, $3) on conflict do nothing

-- name: versions_stamp
-- a number that a trigger changes with any change of versions
select value from evervec_meta where key = 'versions'

-- name: loaded_kinds
-- kinds whose rows come from a loader or an attached table
select kind from evervec_versions where kind in texts($1) and app = 1
union
select kind from evervec_attached where kind in texts($1)

-- name: count_upto
select count(*)
from (select 1 from evervec_jobs
      where status = $1 and ($2::text is null or tenant = $2) limit $3) as counted

-- name: open_jobs
select count(*)
from (select 1 from evervec_jobs where status = 'pending' and version = $1 limit $2) as counted

-- name: set_priorities
update evervec_jobs set priority = $1 where job_id in list($2)

-- name: retry_many
update evervec_jobs
set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
    scheduled_for = $1
where job_id in list($2) and status = 'failed'

-- name: first_records
-- a tenant's records from a kind and an id on
select record from evervec_records
where tenant = $1 and (kind, id) >= ($2, $3)
order by kind, id
limit $4

-- name: job_saved
select coalesce(saved_at, created_at) from evervec_jobs where job_id = $1

-- name: latest_attempts
select a.attempt, a.seq, a.worker, a.started_at, a.finished_at, a.outcome, a.error,
       a.chunks_embedded, a.chunks_reused, a.tokens, a.embedded_at, v.name as version_name
from evervec_attempts as a
left join evervec_versions as v on v.version = a.version
where a.record = $1 and a.version = $2 and a.finished_at >= $3
order by a.number desc
limit $4
