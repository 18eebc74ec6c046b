-- Records: changes, lists, and what searches read.

-- name: add_version
insert into evervec_versions (version, kind, state, created_at) values (?, ?, 'serving', ?)

-- name: known_records
select r.id, r.record, r.state, r.seq, r.hash, r.weight, r.created_at, r.updated_at, r.version,
       r.metadata, r.data, r.born, j.job_id, j.status, j.op, j.box is not null, l.seq
from json_each(?4) as wanted
cross join evervec_records as r on r.tenant = ?1 and r.kind = ?2 and r.id = wanted.value
left join evervec_jobs as j on j.record = r.record and j.version = ?3
left join evervec_ledger as l on l.record = r.record and l.version = ?3 and l.doubt is null

-- name: update_quietly
update evervec_records set created_at = ?, updated_at = ?, version = ?, data = ? where record = ?

-- name: unindex_text
insert into evervec_text (evervec_text, rowid, scope, title, text)
select 'delete', r.record, ?, coalesce(r.title, ''), r.text
from evervec_records as r
where r.record in (select value from json_each(?)) and r.state = 'live'

-- name: count_status
select count(*) from evervec_jobs where status = ?1 and (?2 is null or tenant = ?2)

-- name: unique_records
select count(distinct record)
from (select record, tenant from evervec_jobs where status = 'pending'
      union all
      select record, tenant from evervec_jobs where status = 'processing')
where ?1 is null or tenant = ?1

-- name: oldest_pending
select min(scheduled_for) from evervec_jobs
where status = 'pending' and (?1 is null or tenant = ?1)

-- name: waiting_since
select min(scheduled_for) from evervec_jobs
where status = 'pending' and priority > ? and tenant not in (select tenant from evervec_pauses union all select tenant from evervec_holds)

-- name: recent_pace
select avg(finished_at - started_at)
from (select tenant, started_at, finished_at, outcome from evervec_attempts
      order by number desc limit 10000)
where outcome = 'done' and (?1 is null or tenant = ?1)

-- name: last_done
select max(completed_at) from evervec_jobs where status = 'done' and (?1 is null or tenant = ?1)

-- name: settled
-- the state of records in the serving version, and their outstanding jobs of any version
select r.tenant, r.kind, r.id, r.state, r.seq, r.born, j.status, j.finished_seq, l.seq,
       (select max(case when o.op = 'load' then o.seq else coalesce(o.box_seq, o.seq) end)
        from evervec_jobs as o
        where o.record = r.record and (o.op = 'load' or o.op = 'open' and o.box is not null)),
       exists (select 1 from evervec_jobs as o
               where o.record = r.record and o.status in ('pending', 'processing'))
from json_each(?1) as k
cross join evervec_records as r
    on r.tenant = json_extract(k.value, '$[0]') and r.kind = json_extract(k.value, '$[1]')
    and r.id = json_extract(k.value, '$[2]')
left join evervec_versions as s on s.kind = r.kind and s.state = 'serving'
left join evervec_jobs as j on j.record = r.record and j.version = s.version
left join evervec_ledger as l on l.record = r.record and l.version = s.version

-- name: mark
select value from evervec_meta where key = 'counter'

-- name: text_totals
-- FTS5's totals: rows, then words by column
select block from evervec_text_data where id = 1

-- name: text_sizes
select json_group_array(hex(sz)) from (
    select s.sz
    from evervec_text as t
    cross join evervec_text_docsize as s on s.id = t.rowid
    where evervec_text match ?
    order by t.rowid desc limit ?
)

-- name: count_text
select count(*) from evervec_text where evervec_text match ?

-- name: score_text
-- all rows in one value: each step to a row would release and take the interpreter lock
with scored as materialized (
    select t.rowid as record, -bm25(evervec_text, 0.0, 2.0, 1.0) as score, s.sz as size
    from evervec_text as t
    cross join evervec_text_docsize as s on s.id = t.rowid
    where evervec_text match ?
)
select json_group_array(json_array(record, score, hex(size))) from scored

-- name: score_text_most
-- `most` is the limit of the score as the number of occurrences grows
with scored as materialized (
    select t.rowid as record, -bm25(evervec_text, 0.0, 2.0, 1.0) as score, s.sz as size,
        -bm25(evervec_text, 0.0, 1e18, 1e18) as most
    from evervec_text as t
    cross join evervec_text_docsize as s on s.id = t.rowid
    where evervec_text match ?
)
select json_group_array(json_array(record, score, hex(size), most)) from scored

-- name: score_text_among
with scored as materialized (
    select t.rowid as record, -bm25(evervec_text, 0.0, 2.0, 1.0) as score, s.sz as size
    from evervec_text as t
    cross join evervec_text_docsize as s on s.id = t.rowid
    where evervec_text match ? and +t.rowid in (select value from json_each(?))
)
select json_group_array(json_array(record, score, hex(size))) from scored

-- name: passing
select r.record from evervec_records as r
where r.record in (select value from json_each(?1)) and (?2 is null or r.kind = ?2)

-- name: contains_text
select r.record, 1.0 from evervec_records as r
where r.tenant = ?1 and r.state = 'live' and (?2 is null or r.kind = ?2)
    and instr(lower(coalesce(r.title, '') || ' ' || r.text), lower(?4)) > 0{filter}
order by r.record desc
limit ?3

-- name: candidates
select r.record, r.kind, r.weight, r.updated_at
from json_each(?) as wanted
cross join evervec_records as r on r.record = wanted.value
where +r.tenant = ? and r.state = 'live'

-- name: found
select r.record, r.kind, r.id, r.title, r.text, r.metadata
from json_each(?) as wanted
cross join evervec_records as r on r.record = wanted.value
where r.state = 'live'

-- name: ledgers
select r.record, l.chunks
from json_each(?) as wanted
cross join evervec_records as r on r.record = wanted.value
cross join evervec_ledger as l
    on l.record = r.record and l.version in (select value from json_each(?)) and l.seq >= r.seq

-- name: expected
select r.record, r.tenant, r.kind, r.id, r.state, r.seq, l.seq, coalesce(l.fence, l.seq),
       l.doubt is not null, l.chunks, v.cut_since, j.status
from evervec_versions as v
cross join evervec_records as r
left join evervec_ledger as l on l.record = r.record and l.version = v.version
left join evervec_jobs as j on j.record = r.record and j.version = v.version
where v.version = ?1 and r.record > ?2 and r.kind = v.kind and (?3 is null or r.tenant = ?3)
order by r.record
limit ?4

-- name: sizes
select coalesce(sum(length(r.text) + coalesce(length(r.title), 0)), 0)
from evervec_records as r
where r.record in (select value from json_each(?))

-- name: holdings
select v.kind, v.name, count(l.record),
       max(case when j.status = 'done' then j.completed_at end)
from evervec_versions as v
cross join evervec_records as r on r.tenant = ?1 and r.kind = v.kind
left join evervec_ledger as l on l.record = r.record and l.version = v.version
left join evervec_jobs as j on j.record = r.record and j.version = v.version
group by v.version
