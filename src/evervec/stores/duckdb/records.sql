-- Records: changes, lists, and reads for searches.

-- name: insert_records
-- words are a text
insert into evervec_records
    (record, tenant, kind, id, state, seq, born, hash, weight, created_at, updated_at, version,
     title, metadata, data, text, words)
select n.record, $1, $2, n.id, n.state, n.seq, n.born, n.hash, n.weight, n.created_at,
       n.updated_at, n.version, n.title, n.metadata, n.data, n.text,
       ' ' || n.title_words || ' ' || n.text_words || ' '
from rows($3 {record_row}) as n

-- name: update_records
-- words are a text
update evervec_records as r
set state = n.state, seq = n.seq, born = n.born, hash = n.hash, weight = n.weight,
    created_at = n.created_at, updated_at = n.updated_at, version = n.version, title = n.title,
    metadata = n.metadata, data = n.data, text = n.text,
    words = ' ' || n.title_words || ' ' || n.text_words || ' '
from rows($1 {record_row}) as n
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
delete from evervec_words where record in list($1)

-- name: replace_jobs
-- updates existing jobs; an upsert would take four times as long
update evervec_jobs as j
set op = n.op,
    seq = n.seq,
    box = n.box,
    box_seq = n.box_seq,
    trace = n.trace,
    saved_at = $1,
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
from rows($2 {job_row}) as n
where j.record = n.record and j.version = n.version
returning j.record, j.version

-- name: held_records
-- what some records count for
select tenant, kind, count(*), sum(
    octets(text) + coalesce(octets(title), 0) + coalesce(octets(data), 0)
    + case when metadata = '{}' then 0 else octets(metadata) end)
from evervec_records
where record in list($1) and state <> 'deleted'
group by tenant, kind

-- name: held_chunks
-- the chunks of some records
select r.tenant, l.version, sum(octet_length(l.chunks) // 24)
from evervec_ledger as l
join evervec_records as r on r.record = l.record
where l.record in list($1)
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

-- name: match_text
-- BM25 over the tenant's live records: the best, and those that the caller names. Phrases have
-- numbers, too
with live as (
    select record, kind, metadata, words, length(words) as size from evervec_records
    where tenant = $1 and state = 'live'),
every as (select count(*) as many, avg(size) as size from live),
found as (
    select record, word, times from evervec_words
    where word in (
        select md5_number_lower(term) from (select unnest($4::varchar[]) as term) as asked)
    union all
    select l.record, md5_number_lower(p.phrase),
           (length(l.words) - length(replace(l.words, p.phrase, ' ')))
    from live as l, (select unnest($5::varchar[]) as phrase) as p
    where contains(l.words, p.phrase)),
hits as (
    select l.record, l.kind, l.metadata, l.size, f.word, f.times
    from found as f
    join live as l on l.record = f.record),
terms as (select word, count(*) as having from hits group by word),
scored as materialized (
    select r.record,
           sum(ln(1 + (e.many - t.having + 0.5) / (t.having + 0.5))
               * r.times * 2.2 / (r.times + 1.2 * (0.25 + 0.75 * r.size / e.size))) as score
    from hits as r
    join terms as t on t.word = r.word
    cross join every as e
    where ($2::varchar is null or r.kind = $2){filter}
    group by r.record)
(select record, score from scored order by score desc, record limit $3)
union all
select record, score from scored where record in list($6)
