-- Claims: due jobs in tenants' turns, leases, and loading of claimed jobs.

-- name: due_any
select 1 from evervec_jobs
where status = 'pending' and scheduled_for <= $1 and not list_contains($2::varchar[], tenant)
limit 1

-- name: first_due
-- the first due jobs of each tenant, at most $1; $3: versions whose jobs are left to other workers
select tenant, arg_min(job_id, (-priority, scheduled_for, job_id), $1::bigint)
from evervec_jobs
where status = 'pending' and scheduled_for <= $2 and crashes <= $4
    and op in ('embed', 'open', 'load', 'delete')
    and ($3::bigint[] is null
         or not list_contains($3::bigint[], version)
             and version in (select version from evervec_versions))
    and not list_contains($5::varchar[], tenant)
group by tenant
order by tenant

-- name: due_jobs
where j.job_id in list($1)
order by list_position($1::bigint[], j.job_id)

-- name: renew
-- the writers' lock is held: time comes from the caller
update evervec_jobs as j
set lease_expires_at = $1
from rows($2 job_id bigint, token text) as n
where j.job_id = n.job_id and j.token = n.token and j.status = 'processing'
returning j.job_id

-- name: next_scheduled
-- a scan: there is no index for it
select min(scheduled_for) from evervec_jobs
where status = 'pending' and ($1::bigint[] is null or version = any ($1::bigint[]))

-- name: load
-- the first jobs whose texts fit into the budget, at least one. An entry in doubt counts as no
-- chunks in the index.
select op, seq, state, title, text, metadata, weight, updated_at, chunks, box, trace, box_seq,
       record_seq
from (
    select j.op, j.seq, r.state, r.title, r.text, r.metadata, r.weight, r.updated_at, l.chunks,
           j.box, j.trace, j.box_seq, r.seq as record_seq, w.place,
           sum(coalesce(length(r.text), 0) + coalesce(length(j.box), 0))
               over (order by w.place) as upto
    from rows($1 job_id bigint, place bigint) as w
    left join evervec_jobs as j on j.job_id = w.job_id
    left join evervec_records as r on r.record = j.record
    left join evervec_ledger as l
        on l.record = j.record and l.version = j.version and l.doubt is null) as f
where place = 1 or upto <= $3::bigint
order by place
