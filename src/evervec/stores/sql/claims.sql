-- Claims: due jobs in tenants' turns, leases, and what a worker loads.
-- For all stores; `named.py` says in which form.

-- name: to_appear
-- records that the serving version's jobs still have to load, without a job for this version
select j.record, j.tenant, j.op, j.priority, j.scheduled_for, j.seq, j.max_attempts, j.box
from evervec_versions as v
join evervec_versions as s on s.kind = v.kind and s.state = 'serving'
join evervec_jobs as j on j.version = s.version
left join evervec_jobs as n on n.record = j.record and n.version = v.version
where v.version = $1 and j.op = 'load' and j.status <> 'done' and n.job_id is null
order by j.record
limit $2

-- name: release
-- coalesce hides from PostgreSQL's planner how rare a token is: it would scan all jobs for it
update evervec_jobs as j
set status = 'pending',
    attempts = case when j.seq > j.claimed_seq then 0 else greatest(j.attempts - 1, 0) end,
    error = coalesce($1, j.error), token = null, lease_expires_at = null,
    scheduled_for = case when j.seq > j.claimed_seq then j.scheduled_for
                         else coalesce($2, j.scheduled_for) end
from rows($3 job_id bigint, token text) as n
where j.job_id = n.job_id and coalesce(j.token = n.token and j.status = 'processing', false)
returning j.job_id

-- name: expired
where j.status = 'processing' and j.lease_expires_at < $1
    and ($2::text is null or j.tenant = $2)
order by j.lease_expires_at
limit $3

-- name: stuck
where j.status = 'processing' and (j.lease_expires_at < $1 or j.started_at < $4)
    and ($2::text is null or j.tenant = $2)
order by j.lease_expires_at
limit $3

-- name: lease
update evervec_jobs
set status = 'processing', token = $1, worker = $2, started_at = $3, lease_expires_at = $4,
    claimed_seq = seq, attempts = attempts + 1
where job_id in list($5)

-- name: due_chosen
where j.job_id in list($1) and j.tenant = $2 and j.status = 'pending' and j.scheduled_for <= $3
    and j.crashes = 0 and j.op in ('embed', 'open', 'load')
order by j.job_id

-- name: next_expiry
select min(lease_expires_at) from evervec_jobs
where status = 'processing' and lease_expires_at >= $1
