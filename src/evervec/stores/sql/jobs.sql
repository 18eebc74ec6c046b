-- Jobs: enqueue, finish, fail, and operations on many jobs.
-- For all stores; `named.py` says in which form.

-- name: collections
select version, kind, state, chunker, app, cut_since, name, provider, model, dimensions
from evervec_versions
order by version

-- name: need_app
update evervec_versions set app = 1 where kind = $1 and app = 0

-- name: owed
-- what jobs still have to read; see `debt` in transitions.py
select record, op, box, coalesce(box_seq, seq) from evervec_jobs
where record in list($1) and op in ('load', 'open') and status <> 'done'

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
