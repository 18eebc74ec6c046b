-- Records: changes, lists, and what searches read.
-- For all stores; `named.py` says in which form.

-- name: targets
select version from evervec_versions
where kind = $1 and state <> 'retired'
order by state <> 'serving', version

-- name: record_columns
r.tenant, r.kind, r.id, r.seq, r.title, r.text, r.metadata, r.weight, r.created_at, r.updated_at,
exists (
    select 1 from evervec_ledger as l
    join evervec_versions as v on v.version = l.version
    where l.record = r.record and l.seq >= r.seq and l.doubt is null and v.kind = r.kind
        and v.state = 'serving'
) as embedded
from evervec_records as r

-- name: record
where r.tenant = $1 and r.kind = $2 and r.id = $3 and r.state = 'live'

-- name: job_by_id
where j.job_id = $1 and ($2::text is null or j.tenant = $2)

-- name: history
select a.attempt, a.seq, a.worker, a.started_at, a.finished_at, a.outcome, a.error,
       a.chunks_embedded, a.chunks_reused, a.tokens
from evervec_records as r
join evervec_attempts as a on a.record = r.record
where r.tenant = $1 and r.kind = $2 and r.id = $3
order by a.number

-- name: serving_job
select j.job_id
from evervec_records as r
join evervec_versions as s on s.kind = r.kind and s.state = 'serving'
join evervec_jobs as j on j.record = r.record and j.version = s.version
where r.tenant = $1 and r.kind = $2 and r.id = $3

-- name: typed
select r.record, r.tenant, r.id, r.seq, r.hash, r.data, r.title, r.metadata, r.weight,
       r.created_at, r.updated_at
from evervec_records as r
where r.record > $1 and r.kind = $2 and r.state = 'live' and r.data is not null
order by r.record
limit $3

-- name: stray_boxes
-- boxes whose version does not serve
select j.job_id, j.record, j.tenant, coalesce(j.box_seq, j.seq), j.priority, j.scheduled_for,
       j.max_attempts, j.box
from evervec_jobs as j
join evervec_records as r on r.record = j.record
left join evervec_versions as v on v.version = j.version
where j.op = 'open' and j.status <> 'done' and j.box is not null
    and (v.state is null or v.state <> 'serving')
    and exists (select 1 from evervec_versions as s where s.kind = r.kind and s.state = 'serving')
order by j.record
limit $1

-- name: rivals
-- the versions that need a job for a change of each record, with the record's jobs for them
select r.record, r.seq, v.version, v.state = 'serving', j.op,
       case when j.op = 'open' then coalesce(j.box_seq, j.seq) else j.seq end
from evervec_records as r
join evervec_versions as v on v.kind = r.kind and v.state <> 'retired'
left join evervec_jobs as j on j.record = r.record and j.version = v.version
where r.record in list($1)
order by r.record, v.version
