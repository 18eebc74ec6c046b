-- Records: changes, lists, and what searches read.

-- name: unindex_text
insert into evervec_text (evervec_text, rowid, scope, title, text)
select 'delete', r.record, ?, coalesce(r.title, ''), r.text
from evervec_records as r
where r.record in (select value from json_each(?)) and r.state = 'live'

-- name: settled
-- the keys come as one JSON list
-- the state of records in the serving version, and their open jobs of any version
select r.tenant, r.kind, r.id, r.state, r.seq, r.born, j.status, j.finished_seq, l.seq as ledger_seq,
       (select max(case when o.op = 'load' then o.seq else coalesce(o.box_seq, o.seq) end)
        from evervec_jobs as o
        where o.record = r.record and (o.op = 'load' or o.op = 'open' and o.box is not null))
           as to_appear,
       exists (select 1 from evervec_jobs as o
               where o.record = r.record and o.status in ('pending', 'processing')) as waits
from (select json_extract(value, '$[0]') as tenant, json_extract(value, '$[1]') as kind,
             json_extract(value, '$[2]') as id
      from json_each(?1)) as k
cross join evervec_records as r on r.tenant = k.tenant and r.kind = k.kind and r.id = k.id
left join evervec_versions as s on s.kind = r.kind and s.state = 'serving'
left join evervec_jobs as j on j.record = r.record and j.version = s.version
left join evervec_ledger as l on l.record = r.record and l.version = s.version

-- name: mark
-- every change takes a number
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
-- with SQLite's `instr`
select r.record, 1.0 from evervec_records as r
where r.tenant = ?1 and r.state = 'live' and (?2 is null or r.kind = ?2)
    and instr(lower(coalesce(r.title, '') || ' ' || r.text), lower(?4)) > 0{filter}
order by r.record desc
limit ?3

-- name: candidates
-- joined with the list: `in` would sort it first, and searches are hot
select r.record, r.kind, r.weight, r.updated_at
from json_each(?) as wanted
cross join evervec_records as r on r.record = wanted.value
where +r.tenant = ? and r.state = 'live'

-- name: found
-- joined with the list: `in` would sort it first, and searches are hot
select r.record, r.kind, r.id, r.title, r.text, r.metadata
from json_each(?) as wanted
cross join evervec_records as r on r.record = wanted.value
where r.state = 'live'

-- name: ledgers
-- joined with the list: `in` would sort it first, and searches are hot
select r.record, l.chunks
from json_each(?) as wanted
cross join evervec_records as r on r.record = wanted.value
cross join evervec_ledger as l
    on l.record = r.record and l.version in (select value from json_each(?)) and l.seq >= r.seq
