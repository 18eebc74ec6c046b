-- Records: changes, lists, and what searches read.
-- For all stores; `named.py` says in which form.

-- name: targets
select version from evervec_versions
where kind = $1 and state <> 'retired'
order by state <> 'serving', version

-- name: record_columns
r.tenant, r.kind, r.id, r.seq, r.title, r.text, r.metadata, r.weight, r.created_at, r.updated_at,
r.data, exists (
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
       a.chunks_embedded, a.chunks_reused, a.tokens, a.embedded_at, v.name as version_name
from evervec_records as r
join evervec_attempts as a on a.record = r.record
left join evervec_versions as v on v.version = a.version
where r.tenant = $1 and r.kind = $2 and r.id = $3
order by a.number desc
limit $4

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

-- name: count_kinds
select r.kind, count(*) from evervec_records as r
where r.tenant = $1 and r.state = 'live'
group by r.kind
order by r.kind

-- name: count_records
select count(*) from evervec_records as r
where r.tenant = $1 and r.state = 'live' and ($2::text is null or r.kind = $2){filter}

-- name: stray_boxes
-- boxes whose version does not serve
select j.job_id, j.record, j.tenant, coalesce(j.box_seq, j.seq) as seq, j.priority,
       j.scheduled_for as due, j.max_attempts, j.box
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
select r.record, r.seq, v.version, v.state = 'serving' as serves, j.op,
       case when j.op = 'open' then coalesce(j.box_seq, j.seq) else j.seq end as job_seq
from evervec_records as r
join evervec_versions as v on v.kind = r.kind and v.state <> 'retired'
left join evervec_jobs as j on j.record = r.record and j.version = v.version
where r.record in list($1)
order by r.record, v.version

-- name: record_row
-- the columns of `RecordValues`
record bigint, id text, state text, seq bigint, born bigint, hash bytea, weight double,
created_at double, updated_at double, version bigint, title text, metadata text, data text,
text text, title_words text, text_words text

-- name: update_quietly
update evervec_records as r
set created_at = n.created_at, updated_at = n.updated_at, version = n.version, data = n.data
from rows($1 created_at double, updated_at double, version bigint, data text, record bigint) as n
where r.record = n.record

-- name: delete_records
update evervec_records as r
set state = 'deleted', seq = n.seq, hash = null, updated_at = $1, title = null, metadata = '{}',
    data = null, text = '', words = null
from rows($2 seq bigint, record bigint) as n
where r.record = n.record

-- name: settled
-- the state of records in the serving version, and their open jobs of any version
select r.tenant, r.kind, r.id, r.state, r.seq, r.born, j.status, j.finished_seq, l.seq as ledger_seq,
       (select max(case when o.op = 'load' then o.seq else coalesce(o.box_seq, o.seq) end)
        from evervec_jobs as o
        where o.record = r.record and (o.op = 'load' or o.op = 'open' and o.box is not null))
           as to_appear,
       (select max(coalesce(o.box_seq, o.seq)) from evervec_jobs as o
        where o.record = r.record and o.op = 'open' and o.box is not null) as to_open,
       exists (select 1 from evervec_jobs as o
               where o.record = r.record and o.status in ('pending', 'processing')) as waits
from listed rows($1 tenant text, kind text, id text) as k
cross join evervec_records as r on r.tenant = k.tenant and r.kind = k.kind and r.id = k.id
left join evervec_versions as s on s.kind = r.kind and s.state = 'serving'
left join evervec_jobs as j on j.record = r.record and j.version = s.version
left join evervec_ledger as l on l.record = r.record and l.version = s.version

-- name: sizes
select coalesce(sum(length(r.text) + coalesce(length(r.title), 0)), 0)::bigint
from evervec_records as r
where r.record in list($1)

-- name: known_records
-- a row or a box may be with any version; of two jobs that read one, the one that did not fail counts
select r.id, r.record, r.state, r.seq, r.hash, r.weight, r.created_at, r.updated_at, r.version,
       r.metadata, r.data, r.born, j.job_id, j.status as job_status,
       (select max(o.status) from evervec_jobs as o
        where o.record = r.record and o.op in ('load', 'open') and o.status <> 'done'
            and (o.op = 'open' or exists (
                select 1 from evervec_versions as v
                where v.version = o.version and v.state <> 'retired'))) as debt,
       exists (select 1 from evervec_jobs as o
               where o.record = r.record and o.box is not null
                   and coalesce(o.box_seq, o.seq) >= r.seq) as boxed,
       l.seq as ledger_seq
from evervec_records as r
left join evervec_jobs as j on j.record = r.record and j.version = $3
left join evervec_ledger as l on l.record = r.record and l.version = $3 and l.doubt is null
where r.tenant = $1 and r.kind = $2 and r.id in texts($4)

-- name: holdings
select v.kind, v.name, count(l.record) as items,
       max(case when j.status = 'done' then j.completed_at end) as last_sync_at
from evervec_versions as v
cross join evervec_records as r on r.tenant = $1 and r.kind = v.kind
left join evervec_ledger as l on l.record = r.record and l.version = v.version
left join evervec_jobs as j on j.record = r.record and j.version = v.version
group by v.version, v.kind, v.name

-- name: add_version
insert into evervec_versions (version, kind, state, created_at) values ($1, $2, 'serving', $3)

-- name: expected
-- subselects, so that planners walk the records by number
select r.record, r.tenant, r.kind, r.id, r.state, r.seq, l.seq as ledger_seq,
       coalesce(l.fence, l.seq) as points_seq, l.doubt is not null as doubtful, l.chunks,
       (select v.cut_since from evervec_versions as v where v.version = $1) as cut_since, j.status
from evervec_records as r
left join evervec_ledger as l on l.record = r.record and l.version = $1
left join evervec_jobs as j on j.record = r.record and j.version = $1
where r.record > $2 and r.kind = (select v.kind from evervec_versions as v where v.version = $1)
    and ($3::text is null or r.tenant = $3)
order by r.record
limit $4

-- name: any_unread
-- whether content of a kind waits to be read
select exists (
    select 1 from evervec_jobs as j
    cross join evervec_records as r on r.record = j.record
    where j.op in ('load', 'open') and j.status in ('pending', 'processing') and r.kind = $1)

-- name: any_known
select exists (
    select 1 from evervec_records where tenant = $1 and kind = $2 and id in texts($3))

-- name: candidates
select r.record, r.kind, r.weight, r.updated_at
from evervec_records as r
where r.record in list($1) and r.tenant = $2 and r.state = 'live'

-- name: found
select r.record, r.kind, r.id, r.title, r.text, r.metadata, r.seq, r.data
from evervec_records as r
where r.record in list($1) and r.state = 'live'

-- name: ledgers
select r.record, l.chunks
from evervec_records as r
join evervec_ledger as l on l.record = r.record and l.version in list($2) and l.seq >= r.seq
where r.record in list($1)

-- name: entries
select r.record, r.id, l.chunks, l.seq >= r.seq as current
from evervec_records as r
join evervec_ledger as l on l.record = r.record and l.version = $4
where r.tenant = $1 and r.kind = $2 and r.id in texts($3) and r.state = 'live'

-- name: exported
select r.record, r.id, r.seq, r.version, r.title, r.text, r.metadata, r.data, r.weight,
       r.created_at, r.updated_at, case when l.seq >= r.seq and l.doubt is null then l.chunks end
from evervec_records as r
left join evervec_ledger as l on l.record = r.record and l.version = $3
where r.tenant = $1 and r.kind = $2 and r.id > $4 and r.state = 'live'
order by r.id
limit $5

-- name: sampled
-- a left join, so that a stretch of records without vectors is not searched for one that has them
select r.record, r.id, substr(r.title, 1, 200) as title,
       case when length(r.metadata) <= 4000 then r.metadata end as metadata, r.updated_at, l.chunks
from evervec_records as r
left join evervec_ledger as l on l.record = r.record and l.version = $3
where r.tenant = $1 and r.kind = $2 and r.id > $4 and r.state = 'live'
order by r.id
limit $5

-- name: last_id
select r.id
from evervec_records as r
where r.tenant = $1 and r.kind = $2 and r.state = 'live'
order by r.id desc
limit 1

-- name: contains_text
select r.record, 1.0::double from evervec_records as r
where r.tenant = $1 and r.state = 'live' and ($2::text is null or r.kind = $2)
    and instr(lower(coalesce(r.title, '') || ' ' || r.text), lower($4)) > 0{filter}
order by r.record desc
limit $3

-- name: contains_text_among
select r.record, 1.0::double from evervec_records as r
where r.record in list($1)
    and instr(lower(coalesce(r.title, '') || ' ' || r.text), lower($2)) > 0
