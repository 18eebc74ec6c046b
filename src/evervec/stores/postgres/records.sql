-- Records: changes, lists, and reads for searches.

-- name: add_version
-- two transactions may create the first version of a kind
insert into evervec.versions (version, kind, state, created_at)
select nextval('evervec.numbers'), $1, 'serving', evervec.now_seconds()
where not exists (
    select 1 from evervec.versions where kind = $1 and state = 'serving')
on conflict do nothing

-- name: needs_app
select exists (select 1 from evervec.versions where kind = $1 and app = 0)

-- name: lock_records
-- in the order of the keys, so that two batches cannot deadlock
select 1 from evervec.records
where tenant = $1 and kind = $2 and id = any ($3::text[])
order by id
for update

-- name: enqueue_new
-- inserts new hidden records with their jobs
with given as materialized (
    select id, nextval('evervec.numbers') as seq from unnest($3::text[]) as id),
new as (
    insert into evervec.records
        (record, tenant, kind, id, state, seq, born, weight, created_at, updated_at, metadata, text)
    select seq, $1, $2, id, 'hidden', seq, seq, 1.0, $4, $4, '{}', '' from given order by id
    {on_conflict}
    returning record, id),
jobs as (
    insert into evervec.jobs
        (job_id, record, version, tenant, op, status, priority, scheduled_for, seq, max_attempts,
         created_at)
    select nextval('evervec.numbers'), o.record, v, $1, 'load', 'pending', $6,
           $4::double precision + $7::double precision, o.record, $8, $4
    from (select record from new order by record) as o
    cross join unnest($5::bigint[]) as v
    returning record, version, job_id)
{answer}

-- name: enqueued_all
-- records are numbered in the order of the ids
select array_agg(job_id order by record) from jobs where version = ($5::bigint[])[1]

-- name: enqueued_some
-- the inserted records, then their jobs
select record, id, null from new
union all
select record, null, job_id from jobs where version = ($5::bigint[])[1]

-- name: history
-- the last attempt of a done job is in the job's row, and has no number. `offset 0` keeps the
-- planner from joining after it has read all attempts.
select a.attempt, a.seq, a.worker, a.started_at, a.finished_at, a.outcome, a.error,
       a.chunks_embedded, a.chunks_reused, a.tokens, a.embedded_at, v.name as version_name
from evervec.records as r
cross join lateral (
    select * from evervec.current_attempts as c where c.record = r.record offset 0) as a
left join evervec.versions as v on v.version = a.version
where r.tenant = $1 and r.kind = $2 and r.id = $3
order by a.finished_at desc, a.number desc
limit $4

-- name: insert_records
-- words are a tsvector; another transaction may insert the same id
insert into evervec.records
    (record, tenant, kind, id, state, seq, born, hash, weight, created_at, updated_at, version,
     title, metadata, data, text, words)
select n.record, $1, $2, n.id, n.state, n.seq, n.born, n.hash, n.weight, n.created_at,
       n.updated_at, n.version, n.title, n.metadata, n.data, n.text,
       ($3 || ' ' || n.text_words)::tsvector
from rows($4 {record_row}) as n
{on_conflict}

-- name: unless_known
on conflict (tenant, kind, id) do nothing
returning id

-- name: update_records
-- words are a tsvector
update evervec.records as r
set state = n.state, seq = n.seq, born = n.born, hash = n.hash, weight = n.weight,
    created_at = n.created_at, updated_at = n.updated_at, version = n.version, title = n.title,
    metadata = n.metadata, data = n.data, text = n.text,
    words = ($1 || ' ' || n.text_words)::tsvector
from rows($2 {record_row}) as n
where r.record = n.record

-- name: put_jobs
insert into evervec.jobs as j
    (job_id, record, version, tenant, op, status, priority, scheduled_for, seq, max_attempts,
     created_at, box, box_seq, trace)
select n.job_id, n.record, n.version, $1, n.op, 'pending', n.priority, n.scheduled_for, n.seq,
       n.max_attempts, $2, n.box, n.box_seq, n.trace
from rows($3 {job_row}) as n
on conflict (record, version) do update set
    op = excluded.op,
    seq = excluded.seq,
    box = excluded.box,
    box_seq = excluded.box_seq,
    trace = excluded.trace,
    saved_at = excluded.created_at,
    max_attempts = excluded.max_attempts,
    priority = case
        when j.status in ('pending', 'processing') then greatest(j.priority, excluded.priority)
        else excluded.priority end,
    -- a pending job keeps its due time unless the new one is earlier, as does a held job that has
    -- already changed since its claim
    (scheduled_for, attempts, crashes, error, completed_at, status) = (
        select case
                   when now.waits or j.status = 'processing' and j.seq > j.claimed_seq
                       or now.held and exists (  -- the claimed seq may be only in the claim's row
                           select 1 from evervec.claims as c
                           where j.job_id between c.first_job and c.last_job
                               and c.seqs[array_position(c.job_ids, j.job_id)] < j.seq)
                       then least(j.scheduled_for, excluded.scheduled_for)
                   else excluded.scheduled_for end,
               case when now.held then j.attempts else 0 end,
               case when now.held then j.crashes else 0 end,
               case when now.held then j.error end,
               case when now.held then j.completed_at end,
               case when j.status = 'processing' then j.status else 'pending' end
        from (
            select j.status = 'pending' and ready as waits,
                   j.status = 'processing' or j.status = 'pending' and not ready as held
            from (select exists (
                select 1 from evervec.ready as q
                where q.later in (false, true) and (q.tenant, q.rank, q.scheduled_for, q.job_id)
                    = (j.tenant, -j.priority::bigint, j.scheduled_for, j.job_id)) as ready) as stands) as now)

-- name: among_ready
join evervec.ready as q on q.job_id = j.job_id

-- name: lock_revealed
select 1 from evervec.records where record = any ($1::bigint[])
order by tenant, kind, id
for update

-- name: any_usage_changes
select 1 from evervec.usage_changes limit 1

-- name: fold_usage
-- in key order, so that two processes that do this cannot deadlock
with gone as materialized (
    delete from evervec.usage_changes
    where ctid = any (array(
        select ctid from evervec.usage_changes limit $1 for update skip locked))
    returning tenant, kind, version, records, bytes, chunks, entries),
kinds as (
    insert into evervec.usage as u (tenant, kind, records, bytes)
    select tenant, kind, sum(records), sum(bytes) from gone where kind is not null
    group by tenant, kind order by tenant, kind
    on conflict (tenant, kind) do update
        set records = u.records + excluded.records, bytes = u.bytes + excluded.bytes),
versions as (
    insert into evervec.chunks as c (tenant, version, chunks, entries)
    select tenant, version, sum(chunks), sum(entries) from gone where version is not null
    group by tenant, version order by tenant, version
    on conflict (tenant, version) do update
        set chunks = c.chunks + excluded.chunks, entries = c.entries + excluded.entries)
select count(*) from gone

-- name: lock_tenant
select pg_advisory_xact_lock(hashtextextended('evervec tenant ' || $1, 0))

-- name: failed_count
select coalesce((select sum(failed) from evervec.job_counts where tenant = ''), 0)
    + coalesce((select sum(failed) from evervec.job_changes), 0)

-- name: job_stats
select s.pending, s.processing, s.done, s.failed, s.records, s.oldest, s.last_done, s.pace,
       s.unfolded
from evervec.job_stats($1) as s

-- name: fold_job_changes
select evervec.fold_job_changes($1)

-- name: waiting_since
-- pending jobs are in `ready`
select evervec.oldest_ready(null, -$1::bigint, array(
    select tenant from evervec.pauses union all select tenant from evervec.holds))

-- name: stray_boxes
-- those of unfinished jobs: no index finds a box
select j.job_id, j.record, j.tenant, coalesce(j.box_seq, j.seq) as seq, j.priority,
       j.scheduled_for as due, j.max_attempts, j.box
from evervec.jobs as j
join evervec.records as r on r.record = j.record
left join evervec.versions as v on v.version = j.version
where j.job_id in (select job_id from evervec.unfinished where coalesce(op, 'open') = 'open')
    and j.op = 'open' and j.status <> 'done' and j.box is not null
    and (v.state is null or v.state <> 'serving')
    and exists (select 1 from evervec.versions as s where s.kind = r.kind and s.state = 'serving')
order by j.record
limit $1

-- name: holdings
-- by the counts that triggers keep
select v.kind, v.name, coalesce(e.items, 0)::bigint as items, c.last_done as last_sync_at
from evervec.versions as v
left join (
    select u.version, sum(u.entries) as items
    from (select version, entries from evervec.chunks where tenant = $1
          union all
          select version, entries from evervec.usage_changes where tenant = $1) as u
    group by u.version) as e on e.version = v.version
left join (
    select u.version, max(u.last_done) as last_done
    from (select version, last_done from evervec.job_counts where tenant = $1
          union all
          select version, last_done from evervec.job_changes where tenant = $1) as u
    group by u.version) as c on c.version = v.version
where exists (select 1 from evervec.records as r where r.tenant = $1 and r.kind = v.kind)

-- name: mark
-- a number that differs after the end of every transaction that wrote
select hashtextextended(pg_current_snapshot()::text, 0)

-- name: match_text
-- words are a tsvector: $4 finds the candidates, of which $6 are scored by $5
select c.record, ts_rank(array[0, 0, 0.5, 1], c.words, $5::tsquery, 1)::double precision as score
from (
    select r.record, r.words from evervec.records as r
    where r.words @@ $4::tsquery and r.state = 'live' and r.tenant = $1
        and ($2::text is null or r.kind = $2){filter}
    limit $6::bigint) as c
order by score desc, c.record
limit $3

-- name: score_records
-- of the given records, those that match
select r.record, ts_rank(array[0, 0, 0.5, 1], r.words, q.words, 1)::double precision
from evervec.records as r
cross join (select $2::tsquery as words) as q
where r.record = any ($3::bigint[]) and r.words @@ q.words and r.state = 'live' and r.tenant = $1

-- name: word_shares
-- the most frequent words, and the share of records that contain each; null before the table is analyzed
select c.reltuples::double precision, s.most_common_elems::text::text[],
       s.most_common_elem_freqs::double precision[]
from pg_class as c
left join pg_stats as s
    on s.schemaname = 'evervec' and s.tablename = 'records' and s.attname = 'words'
    and s.inherited = (c.relkind = 'p')
where c.oid = 'evervec.records'::regclass

-- name: words_uncounted
-- whether at least half of the records, and so many, changed since the table was analyzed; or, if it
-- is split, are new since: autovacuum does not analyze it as a whole
select coalesce(
    case when c.relkind = 'p' then sum(s.n_live_tup) - greatest(c.reltuples, 0)
         else sum(s.n_mod_since_analyze) end >= greatest($1, sum(s.n_live_tup) / 2), false)
from pg_class as c
left join pg_stat_user_tables as s
    on s.relid = c.oid
    or s.relid in (select i.inhrelid from pg_inherits as i where i.inhparent = c.oid)
where c.oid = 'evervec.records'::regclass
group by c.oid

-- name: contains_text
-- with PostgreSQL's `ilike`
select r.record, 1.0::double precision from evervec.records as r
where r.tenant = $1 and r.state = 'live' and ($2::text is null or r.kind = $2)
    and coalesce(r.title, '') || ' ' || r.text
        ilike '%' || regexp_replace($4, '([\\%_])', '\\\1', 'g') || '%'{filter}
order by r.record desc
limit $3

-- name: contains_text_among
-- with PostgreSQL's `ilike`
select r.record, 1.0::double precision from evervec.records as r
where r.record = any ($1::bigint[])
    and coalesce(r.title, '') || ' ' || r.text
        ilike '%' || regexp_replace($2, '([\\%_])', '\\\1', 'g') || '%'
