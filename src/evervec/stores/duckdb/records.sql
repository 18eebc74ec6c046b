-- Records: changes, lists, and reads for searches.

-- name: add_version
insert into evervec_versions (version, kind, state, created_at) values ($1, $2, 'serving', $3)

-- name: any_known
select 1 from evervec_records
where tenant = $1 and kind = $2 and id in (select unnest($3::varchar[]))
limit 1

-- name: known_records
select r.id, r.record, r.state, r.seq, r.hash, r.weight, r.created_at, r.updated_at, r.version,
       r.metadata, r.data, r.born, j.job_id, j.status, j.op, j.box is not null, l.seq
from evervec_records as r
left join evervec_jobs as j on j.record = r.record and j.version = $3
left join evervec_ledger as l
    on l.record = r.record and l.version = $3 and l.doubt is null
where r.tenant = $1 and r.kind = $2 and r.id in (select unnest($4::varchar[]))

-- name: insert_records
insert into evervec_records
    (record, tenant, kind, id, state, seq, born, hash, weight, created_at, updated_at, version,
     title, metadata, data, text, words)
select unnest($3::bigint[]), $1, $2, unnest($4::varchar[]), unnest($5::varchar[]),
       unnest($6::bigint[]), unnest($7::bigint[]), unnest($8::blob[]), unnest($9::double[]),
       unnest($10::double[]), unnest($11::double[]), unnest($12::bigint[]), unnest($13::varchar[]),
       unnest($14::varchar[]), unnest($15::varchar[]), unnest($16::varchar[]),
       ' ' || unnest($17::varchar[]) || ' ' || unnest($18::varchar[]) || ' '

-- name: update_records
update evervec_records as r
set state = n.state, seq = n.seq, born = n.born, hash = n.hash, weight = n.weight,
    created_at = n.created_at, updated_at = n.updated_at, version = n.version, title = n.title,
    metadata = n.metadata, data = n.data, text = n.text,
    words = ' ' || n.title_words || ' ' || n.text_words || ' '
from (
    select unnest($1::bigint[]) as record, unnest($2::varchar[]) as id,
           unnest($3::varchar[]) as state, unnest($4::bigint[]) as seq, unnest($5::bigint[]) as born, unnest($6::blob[]) as hash,
           unnest($7::double[]) as weight, unnest($8::double[]) as created_at,
           unnest($9::double[]) as updated_at, unnest($10::bigint[]) as version,
           unnest($11::varchar[]) as title, unnest($12::varchar[]) as metadata,
           unnest($13::varchar[]) as data, unnest($14::varchar[]) as text,
           unnest($15::varchar[]) as title_words, unnest($16::varchar[]) as text_words) as n
where r.record = n.record

-- name: update_quietly
update evervec_records as r
set created_at = n.created_at, updated_at = n.updated_at, version = n.version, data = n.data
from (
    select unnest($1::double[]) as created_at, unnest($2::double[]) as updated_at,
           unnest($3::bigint[]) as version, unnest($4::varchar[]) as data,
           unnest($5::bigint[]) as record) as n
where r.record = n.record

-- name: delete_records
update evervec_records as r
set state = 'deleted', seq = n.seq, hash = null, updated_at = $1, title = null, metadata = '{}',
    data = null, text = '', words = null
from (select unnest($2::bigint[]) as seq, unnest($3::bigint[]) as record) as n
where r.record = n.record

-- name: index_words
insert into evervec_words (record, word, times)
select record, md5_number_lower(word), count(*)
from (
    select record, unnest(string_split(words, ' ')) as word
    from (select unnest($1::bigint[]) as record, unnest($2::varchar[]) as words) as n) as w
where word <> ''
group by record, word

-- name: unindex_words
delete from evervec_words where record in (select unnest($1::bigint[]))

-- name: insert_jobs
insert into evervec_jobs
    (job_id, record, version, tenant, op, status, priority, scheduled_for, seq, max_attempts,
     created_at, box, box_seq, trace)
select unnest($3::bigint[]), unnest($4::bigint[]), unnest($5::bigint[]), $1,
       unnest($6::varchar[]), 'pending', unnest($7::bigint[]), unnest($8::double[]),
       unnest($9::bigint[]), unnest($10::bigint[]), $2, unnest($11::varchar[]),
       unnest($12::bigint[]), unnest($13::varchar[])

-- name: replace_jobs
-- updates existing jobs; an upsert would take four times as long
update evervec_jobs as j
set op = n.op,
    seq = n.seq,
    box = n.box,
    box_seq = n.box_seq,
    trace = n.trace,
    max_attempts = n.max_attempts,
    priority = case
        when j.status in ('pending', 'processing') then greatest(j.priority, n.priority)
        else n.priority end,
    -- a pending job keeps its due time unless the new one is earlier, as does a held job that has
    -- already changed since its claim
    scheduled_for = case
        when j.status = 'pending' or j.status = 'processing' and j.seq > j.claimed_seq
            then least(j.scheduled_for, n.scheduled_for)
        else n.scheduled_for end,
    attempts = case when j.status = 'processing' then j.attempts else 0 end,
    crashes = case when j.status = 'processing' then j.crashes else 0 end,
    error = case when j.status = 'processing' then j.error end,
    completed_at = case when j.status = 'processing' then j.completed_at end,
    status = case when j.status = 'processing' then j.status else 'pending' end
from (
    select unnest($1::bigint[]) as job_id, unnest($2::bigint[]) as record,
           unnest($3::bigint[]) as version,
           unnest($4::varchar[]) as op, unnest($5::bigint[]) as priority,
           unnest($6::double[]) as scheduled_for, unnest($7::bigint[]) as seq,
           unnest($8::bigint[]) as max_attempts, unnest($9::varchar[]) as box,
           unnest($10::bigint[]) as box_seq, unnest($11::varchar[]) as trace) as n
where j.record = n.record and j.version = n.version
returning j.record, j.version

-- name: held_usage
-- the usage of some records, as it is counted
select r.tenant, r.kind, null, count(*), sum(
    strlen(r.text) + coalesce(strlen(r.title), 0) + coalesce(strlen(r.data), 0)
    + case when r.metadata = '{}' then 0 else strlen(r.metadata) end), 0
from evervec_records as r
where r.record in (select unnest($1::bigint[])) and r.state <> 'deleted'
group by r.tenant, r.kind
union all
select r.tenant, null, l.version, 0, 0, sum(octet_length(l.chunks) // 24)
from evervec_ledger as l
join evervec_records as r on r.record = l.record
where l.record in (select unnest($1::bigint[]))
group by r.tenant, l.version

-- name: add_usage
update evervec_usage set records = records + $3, bytes = bytes + $4
where tenant = $1 and kind = $2

-- name: new_usage
insert into evervec_usage (tenant, kind, records, bytes) values ($1, $2, $3, $4)

-- name: add_chunks
update evervec_chunks set chunks = chunks + $3 where tenant = $1 and version = $2

-- name: new_chunks
insert into evervec_chunks (tenant, version, chunks) values ($1, $2, $3)

-- name: count_status
select count(*) from evervec_jobs where status = $1 and ($2::varchar is null or tenant = $2)

-- name: unique_records
select count(distinct record) from evervec_jobs
where status in ('pending', 'processing') and ($1::varchar is null or tenant = $1)

-- name: oldest_pending
select min(scheduled_for) from evervec_jobs
where status = 'pending' and ($1::varchar is null or tenant = $1)

-- name: waiting_since
select min(scheduled_for) from evervec_jobs
where status = 'pending' and priority > $1 and tenant not in (select tenant from evervec_pauses union all select tenant from evervec_holds)

-- name: recent_pace
select avg(finished_at - started_at)
from (select tenant, started_at, finished_at, outcome from evervec_attempts
      order by number desc limit 10000) as latest
where outcome = 'done' and ($1::varchar is null or tenant = $1)

-- name: last_done
select max(completed_at) from evervec_jobs
where status = 'done' and ($1::varchar is null or tenant = $1)

-- name: settled
-- the state of records in the serving version, and their open jobs of any version
select r.tenant, r.kind, r.id, r.state, r.seq, r.born, j.status, j.finished_seq, l.seq,
       (select max(case when o.op = 'load' then o.seq else coalesce(o.box_seq, o.seq) end)
        from evervec_jobs as o
        where o.record = r.record and (o.op = 'load' or o.op = 'open' and o.box is not null)),
       exists (select 1 from evervec_jobs as o
               where o.record = r.record and o.status in ('pending', 'processing'))
from (select unnest($1::varchar[]) as tenant, unnest($2::varchar[]) as kind,
             unnest($3::varchar[]) as id) as k
join evervec_records as r on r.tenant = k.tenant and r.kind = k.kind and r.id = k.id
left join evervec_versions as s on s.kind = r.kind and s.state = 'serving'
left join evervec_jobs as j on j.record = r.record and j.version = s.version
left join evervec_ledger as l on l.record = r.record and l.version = s.version

-- name: match_text
-- BM25 over the tenant's live records
with live as (
    select record, kind, metadata, words, length(words) as size from evervec_records
    where tenant = $1 and state = 'live'),
every as (select count(*) as many, avg(size) as size from live),
hits as (
    select w.record, w.word::varchar as term, w.times
    from evervec_words as w
    where w.word = any (list_transform($4::varchar[], lambda x: md5_number_lower(x)))
    union all
    select l.record, p.phrase, (length(l.words) - length(replace(l.words, p.phrase, ' ')))
    from live as l, (select unnest($5::varchar[]) as phrase) as p
    where contains(l.words, p.phrase)),
found as (
    select h.record, h.times, l.size / e.size as size,
           count(*) over (partition by h.term) as having, e.many
    from hits as h
    join live as l on l.record = h.record
    cross join every as e)
select r.record,
       sum(ln(1 + (f.many - f.having + 0.5) / (f.having + 0.5))
           * f.times * 2.2 / (f.times + 1.2 * (0.25 + 0.75 * f.size))) as score
from found as f
join live as r on r.record = f.record
where ($2::varchar is null or r.kind = $2){filter}
group by r.record
order by score desc, r.record
limit $3

-- name: contains_text
select r.record, 1.0::double from evervec_records as r
where r.tenant = $1 and r.state = 'live' and ($2::varchar is null or r.kind = $2)
    and contains(lower(coalesce(r.title, '') || ' ' || r.text), lower($4)){filter}
order by r.record desc
limit $3

-- name: candidates
select r.record, r.kind, r.weight, r.updated_at
from evervec_records as r
where r.record in (select unnest($1::bigint[])) and r.tenant = $2 and r.state = 'live'

-- name: found
select r.record, r.kind, r.id, r.title, r.text, r.metadata
from evervec_records as r
where r.record in (select unnest($1::bigint[])) and r.state = 'live'

-- name: ledgers
select r.record, l.chunks
from evervec_records as r
join evervec_ledger as l
    on l.record = r.record and l.version = any ($2::bigint[]) and l.seq >= r.seq
where r.record in (select unnest($1::bigint[]))

-- name: expected
select r.record, r.tenant, r.kind, r.id, r.state, r.seq, l.seq, coalesce(l.fence, l.seq),
       l.doubt is not null, l.chunks, v.cut_since, j.status
from evervec_versions as v
join evervec_records as r on r.kind = v.kind
left join evervec_ledger as l on l.record = r.record and l.version = v.version
left join evervec_jobs as j on j.record = r.record and j.version = v.version
where v.version = $1 and r.record > $2 and ($3::varchar is null or r.tenant = $3)
order by r.record
limit $4

-- name: sizes
select coalesce(sum(length(r.text) + coalesce(length(r.title), 0)), 0)::bigint
from evervec_records as r
where r.record in (select unnest($1::bigint[]))

-- name: holdings
select v.kind, v.name, count(l.record), max(j.completed_at) filter (where j.status = 'done')
from evervec_versions as v
join evervec_records as r on r.tenant = $1 and r.kind = v.kind
left join evervec_ledger as l on l.record = r.record and l.version = v.version
left join evervec_jobs as j on j.record = r.record and j.version = v.version
group by v.version, v.kind, v.name
