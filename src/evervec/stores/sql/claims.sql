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
