-- Claims: due jobs in tenants' turns, leases, and what a worker loads.

-- name: any_promoted
select 1 from evervec_jobs indexed by evervec_jobs_later
where status = 'pending' and later = 1 and scheduled_for <= ?
limit 1

-- name: promote
-- delayed jobs that are due now
update evervec_jobs set later = 0
where job_id in (
    select job_id from evervec_jobs indexed by evervec_jobs_later
    where status = 'pending' and later = 1 and scheduled_for <= ?
    order by scheduled_for
    limit ?)

-- name: next_tenant
-- the next tenant after a name, in the order of names, that has jobs to claim
select tenant from evervec_jobs indexed by evervec_jobs_turns
where status = 'pending' and later = 0 and tenant > ?
order by tenant limit 1

-- name: due_of_tenant
-- ?4: versions whose jobs this process does not claim
where j.status = 'pending' and j.later = 0 and j.tenant = ?1 and j.scheduled_for <= ?2
    and j.crashes <= ?3 and j.op in ('embed', 'open', 'load', 'delete')
    and (?4 is null
         or j.version not in (select value from json_each(?4))
             and exists (select 1 from evervec_versions as v where v.version = j.version))
order by j.priority desc, j.scheduled_for, j.job_id
limit ?5

-- name: load
-- an entry in doubt is left out: it does not prove that its chunks are in the index
select j.op, j.seq, r.state, r.title, r.text, r.metadata, r.weight, r.updated_at, l.chunks, j.box,
       j.trace, j.box_seq, r.seq as record_seq
from json_each(?) as wanted
left join evervec_jobs as j on j.job_id = wanted.value
left join evervec_records as r on r.record = j.record
left join evervec_ledger as l
    on l.record = j.record and l.version = j.version and l.doubt is null

-- name: release
-- `later`: the next claim looks whether the job is due; the caller has checked the token
update evervec_jobs
set status = 'pending', attempts = iif(seq > claimed_seq, 0, max(attempts - 1, 0)),
    error = coalesce(?1, error),
    scheduled_for = iif(seq > claimed_seq, scheduled_for, coalesce(?2, scheduled_for)),
    later = later or ?2 is not null, token = null, lease_expires_at = null
where job_id = ?3

-- name: renew
-- the caller has checked the token
update evervec_jobs set lease_expires_at = ? where job_id = ?

-- name: next_scheduled
-- one job of each partial index
-- the earlier due time of: one job that can be claimed now, the first delayed job
select min(scheduled_for) from (
    select * from (
        select scheduled_for from evervec_jobs indexed by evervec_jobs_turns
        where status = 'pending' and later = 0
            and (?1 is null or version in (select value from json_each(?1)))
        limit 1)
    union all
    select * from (
        select scheduled_for from evervec_jobs indexed by evervec_jobs_later
        where status = 'pending' and later = 1
            and (?1 is null or version in (select value from json_each(?1)))
        order by scheduled_for limit 1))
