-- Every query of the PostgreSQL store by name. Lists come in as arrays.

-- name: try_write
-- changes nothing, and is undone
update evervec.meta set value = value where key = 'paused'

-- name: now
select evervec.now_seconds()

-- name: take_numbers
select nextval('evervec.numbers') from generate_series(1, $1::integer)

-- name: lock_counter
-- changes nothing, but takes the lock that keeps others from taking numbers
alter sequence evervec.numbers no cycle

-- name: last_number
select last_value from evervec.numbers

-- name: targets
select version from evervec.versions
where kind = $1 and state <> 'retired'
order by state <> 'serving', version

-- name: add_version
insert into evervec.versions (version, kind, state, created_at)
select nextval('evervec.numbers'), $1, 'serving', evervec.now_seconds()
where not exists (
    select 1 from evervec.versions where kind = $1 and state = 'serving')
on conflict do nothing

-- name: collections
select version, kind, state, chunker, app, cut_since, name, provider, model, dimensions
from evervec.versions
order by version

-- name: loaded_kinds
-- whose rows a loader or an attached table gives
select kind from evervec.versions where kind = any ($1::text[]) and app = 1
union
select kind from evervec.attached where kind = any ($1::text[])

-- name: needs_app
select exists (select 1 from evervec.versions where kind = $1 and app = 0)

-- name: need_app
update evervec.versions set app = 1 where kind = $1 and app = 0

-- name: adopt
update evervec.versions set name = $1, provider = $2, model = $3, dimensions = $4
where name = ''

-- name: describe_version
update evervec.versions
set cut_since = case when chunker in ('', $1) then cut_since else $2 end, chunker = $1, app = $3
where version = $4

-- name: versions
select v.name, v.kind, v.provider, v.model, v.dimensions, v.state,
       coalesce(l.count, 0), v.last_sync_at, v.chunker, v.created_at
from evervec.versions as v
left join (select version, count(*) as count from evervec.ledger group by version) as l
    on l.version = v.version
order by v.kind, v.version

-- name: touch_versions
-- at most once a second, and never waiting for another worker that does it
update evervec.versions set last_sync_at = $1
where version in (
    select version from evervec.versions
    where version = any ($2::bigint[]) and coalesce(last_sync_at, 0) < $1::double precision - 1
    for update skip locked)

-- name: lock_records
-- in the order of their keys, so that two batches never wait for each other
select 1 from evervec.records
where tenant = $1 and kind = $2 and id = any ($3::text[])
order by id
for update

-- name: known_records
select r.id, r.record, r.state, r.seq, r.hash, r.weight, r.created_at, r.updated_at, r.version,
       r.metadata, r.data, r.born, j.job_id, j.status, j.op, j.box is not null, l.seq
from evervec.records as r
left join evervec.jobs as j on j.record = r.record and j.version = $3
left join evervec.ledger as l
    on l.record = r.record and l.version = $3 and l.doubt is null
where r.tenant = $1 and r.kind = $2 and r.id = any ($4::text[])

-- name: any_known
select exists (
    select 1 from evervec.records where tenant = $1 and kind = $2 and id = any ($3::text[]))

-- name: enqueue_new
-- records that are not there yet, hidden, with their jobs
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
-- numbers are given out in the order of the ids
select array_agg(job_id order by record) from jobs where version = ($5::bigint[])[1]

-- name: enqueued_some
-- what was inserted, then the jobs
select record, id, null from new
union all
select record, null, job_id from jobs where version = ($5::bigint[])[1]

-- name: insert_records
insert into evervec.records
    (record, tenant, kind, id, state, seq, born, hash, weight, created_at, updated_at, version,
     title, metadata, data, text, words)
select n.record, $1, $2, n.id, n.state, n.seq, n.born, n.hash, n.weight, n.created_at,
       n.updated_at, n.version, n.title, n.metadata, n.data, n.text,
       evervec.words_of($3, n.title_words, n.text_words)
from unnest(
    $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::bytea[],
    $10::double precision[], $11::double precision[], $12::double precision[], $13::bigint[],
    $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[]
) as n (record, id, state, seq, born, hash, weight, created_at, updated_at, version, title,
        metadata, data, text, title_words, text_words)
on conflict (tenant, kind, id) do nothing
returning id

-- name: update_records
update evervec.records as r
set state = n.state, seq = n.seq, born = n.born, hash = n.hash, weight = n.weight,
    created_at = n.created_at, updated_at = n.updated_at, version = n.version, title = n.title,
    metadata = n.metadata, data = n.data, text = n.text,
    words = evervec.words_of($1, n.title_words, n.text_words)
from unnest(
    $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bytea[], $7::double precision[],
    $8::double precision[], $9::double precision[], $10::bigint[], $11::text[], $12::text[],
    $13::text[], $14::text[], $15::text[], $16::text[]
) as n (record, state, seq, born, hash, weight, created_at, updated_at, version, title, metadata,
        data, text, title_words, text_words)
where r.record = n.record

-- name: update_quietly
update evervec.records as r
set created_at = n.created_at, updated_at = n.updated_at, version = n.version, data = n.data
from unnest($1::double precision[], $2::double precision[], $3::bigint[], $4::text[], $5::bigint[])
    as n (created_at, updated_at, version, data, record)
where r.record = n.record

-- name: delete_records
update evervec.records as r
set state = 'deleted', seq = n.seq, hash = null, updated_at = $1, title = null, metadata = '{}',
    data = null, text = '', words = null
from unnest($2::bigint[], $3::bigint[]) as n (seq, record)
where r.record = n.record

-- name: put_jobs
insert into evervec.jobs as j
    (job_id, record, version, tenant, op, status, priority, scheduled_for, seq, max_attempts,
     created_at, box, box_seq, trace)
select n.job_id, n.record, n.version, $1, n.op, 'pending', n.priority, n.scheduled_for, n.seq,
       n.max_attempts, $2, n.box, n.box_seq, n.trace
from unnest(
    $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::integer[], $8::double precision[],
    $9::bigint[], $10::integer[], $11::text[], $12::bigint[], $13::text[]
) as n (job_id, record, version, op, priority, scheduled_for, seq, max_attempts, box, box_seq,
    trace)
on conflict (record, version) do update set
    op = excluded.op,
    seq = excluded.seq,
    box = excluded.box,
    box_seq = excluded.box_seq,
    trace = excluded.trace,
    max_attempts = excluded.max_attempts,
    priority = case
        when j.status in ('pending', 'processing') then greatest(j.priority, excluded.priority)
        else excluded.priority end,
    -- a waiting job keeps its place; one that is held may wait for its next pass
    (scheduled_for, attempts, crashes, error, completed_at, status) = (
        select case
                   when now.waits or j.status = 'processing' and j.seq > j.claimed_seq
                       or now.held and exists (  -- a claim alone may tell what it was claimed for
                           select 1 from evervec.claims as c
                           where c.seqs[array_position(c.job_ids, j.job_id)] < j.seq)
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

-- name: owed
-- what jobs have yet to read; see `debt` in transitions.py
select record, op, box, coalesce(box_seq, seq) from evervec.jobs
where record = any ($1::bigint[]) and op in ('load', 'open') and status <> 'done'

-- name: job_columns
j.job_id, j.tenant, r.kind, r.id, j.version, j.op, j.seq, j.claimed_seq, j.status, j.priority,
j.attempts, j.max_attempts, j.error, j.token, j.created_at, j.scheduled_for, j.started_at,
j.completed_at, j.lease_expires_at, j.record, j.worker, j.crashes
from evervec.current_jobs as j
join evervec.records as r on r.record = j.record

-- name: among_ready
join evervec.ready as q on q.job_id = j.job_id

-- name: versions_stamp
-- another number after any change of versions, by a trigger
select value from evervec.meta where key = 'versions'

-- name: kinds
-- of which a tenant has records, each by one step in their key
with recursive k (kind) as (
    select (select kind from evervec.records where tenant = $1 order by kind limit 1)
    union all
    select (select r.kind from evervec.records as r
            where r.tenant = $1 and r.kind > k.kind order by r.kind limit 1)
    from k where k.kind is not null)
select kind from k where kind is not null

-- name: claim
-- In one statement, which is a transaction of its own. What was told comes with the first row.
-- Where a worker died of a job, nothing is claimed until it was said which of them.
with begun as materialized (
    select evervec.now_seconds() as now, clock_timestamp() as at,
           set_config('synchronous_commit', 'off', true)),
due as materialized (
    select begun.now, d.places, d.suspect, json_build_array(
        begun.now, extract(epoch from clock_timestamp() - begun.at), d.jobs, d.suspect,
        d.next_turn, d.tenants, d.ranks, d.times, d.firsts)::text as told
    from begun, evervec.next_jobs($1, begun.now, $2, $3, $4, $5, $6, $7, $8) as d)
select case when coalesce(t.ordinality, 1) = 1 then due.told end, t.job_id, t.tenant, t.kind, t.id,
       t.version, t.op, t.seq, t.priority, t.attempts, t.max_attempts, t.error, t.created_at,
       t.scheduled_for, t.completed_at, t.record, t.crashes
from due
left join evervec.take_jobs(
    $9, $10, due.now, due.now + $11,
    case when due.suspect and $12::bigint[] is null then '{}' else due.places end, $12::bigint[]
) with ordinality as t on true

-- name: suspects
select job_id, crashes, attempts, max_attempts from evervec.jobs
where job_id = any ($1::bigint[])

-- name: write_leases
select evervec.write_leases($1, $2)

-- name: write_expired
-- but not of jobs that somebody has locked: the others need not wait for that
with ended as materialized (
    select token, job_ids from evervec.claims
    where job_ids <> '{}' and (leased_until < $1 or started_at < $2)
    for update skip locked),
held as materialized (select unnest(job_ids) as job_id from ended),
free as materialized (
    select job_id from evervec.jobs where job_id = any (array(select job_id from held))
    order by job_id
    for update skip locked),
there as materialized (
    select job_id from evervec.jobs where job_id = any (array(select job_id from held)))
select evervec.write_leases(
    array(select token from ended),
    array(select job_id from held
          where job_id in (select job_id from free) or job_id not in (select job_id from there)))

-- name: load
-- the first so many whose texts fit together, and at least one. Of an entry in doubt nothing is
-- known to be in the index.
select op, seq, state, title, text, metadata, weight, updated_at, chunks, box, trace, box_seq
from (
    select j.op, j.seq, r.state, r.title, r.text, r.metadata, r.weight, r.updated_at, l.chunks,
           j.box, j.trace, j.box_seq, w.place,
           sum(coalesce(length(r.text), 0) + coalesce(length(j.box), 0))
               over (order by w.place) as upto
    from unnest($1::bigint[]) with ordinality as w (job_id, place)
    left join evervec.jobs as j on j.job_id = w.job_id
    left join evervec.records as r on r.record = j.record
    left join evervec.ledger as l
        on l.record = j.record and l.version = j.version and l.doubt is null) as f
where place = 1 or upto <= $2::bigint
order by place

-- name: standing
-- in the order of their keys, so that two bulk finishes never wait for each other
select job_id, status, op, seq, claimed_seq, finished_seq, token, attempts, max_attempts, crashes,
       box is not null, priority, scheduled_for, error, completed_at, started_at, lease_expires_at
from evervec.jobs
where job_id = any ($1::bigint[])
order by job_id
for update

-- name: lock_revealed
select 1 from evervec.records where record = any ($1::bigint[])
order by tenant, kind, id
for update

-- name: finish
update evervec.jobs as j
set status = case when j.seq > n.seq then 'pending' else 'done' end,
    attempts = case when j.seq > n.seq then 0 else j.attempts end,
    box = case when j.seq > n.seq then j.box end,
    finished_seq = n.seq, completed_at = $1, lease_expires_at = null, error = null, crashes = 0
from unnest($2::bigint[], $3::bigint[]) as n (seq, job_id)
where j.job_id = n.job_id

-- name: finish_claimed
-- jobs of which only their claim tells that they are leased, with their attempts; null: all of them
-- No row: it tells of none.
with now as materialized (select evervec.now_seconds() as now),
claim as materialized (  -- its lists whole, not to be fetched for each job
    select started_at, job_ids || '{}'::bigint[] as job_ids, seqs || '{}'::bigint[] as seqs
    from evervec.claims where token = $1 and job_ids <> '{}'
    for update),
done as (
    update evervec.jobs as j
    set status = 'done', token = $1, worker = $2, box = null, claimed_seq = j.seq,
        finished_seq = j.seq, attempts = j.attempts + 1, started_at = claim.started_at,
        completed_at = now.now, error = null, crashes = 0
    from now, claim
    where j.job_id = any ($3::bigint[]) and j.status = 'pending'
        and claim.job_ids[width_bucket(j.job_id, claim.job_ids)] = j.job_id
        and claim.seqs[width_bucket(j.job_id, claim.job_ids)] = j.seq
    returning j.job_id, j.record, j.tenant, j.version, j.attempts, j.seq, j.started_at,
              j.completed_at, width_bucket(j.job_id, $3::bigint[]) as place),
noted as (
    insert into evervec.attempts
        (record, tenant, version, attempt, seq, started_at, finished_at, outcome, chunks_embedded,
         chunks_reused, tokens, worker)
    select record, tenant, version, attempts, seq, started_at, completed_at, 'done',
           coalesce(($4::integer[])[place], 0), coalesce(($5::integer[])[place], 0),
           coalesce(($6::integer[])[place], 0), $2
    from done),
ended as (select count(*) as count from done),
rest as (
    select coalesce(array_agg(u.job_id order by u.job_id), '{}') as job_ids,
           coalesce(array_agg(u.seq order by u.job_id), '{}') as seqs
    from claim, ended, unnest(claim.job_ids, claim.seqs) as u (job_id, seq)
    where ended.count < cardinality(claim.job_ids) and u.job_id not in (select job_id from done)),
let_go as (
    update evervec.claims as c
    set held = c.held - ended.count::integer, job_ids = rest.job_ids, seqs = rest.seqs
    from claim, ended, rest where c.token = $1 and c.held > ended.count),
gone as (
    delete from evervec.claims as c using claim, ended
    where c.token = $1 and c.held <= ended.count)
select case when ended.count < cardinality($3::bigint[]) then array(select job_id from done) end
from claim, ended

-- name: finish_untouched
-- jobs that are still as they were claimed, with their attempts; null: all of them were
-- They come in order, so that a job's place in the list is found without a join.
with now as materialized (select evervec.now_seconds() as now),
done as (
    update evervec.jobs as j
    set status = 'done', box = null, finished_seq = j.claimed_seq, completed_at = now.now,
        lease_expires_at = null, error = null, crashes = 0
    from now
    -- a planner that knew how rare a token is would rather walk all jobs in search of it
    where j.job_id = any ($3::bigint[])
        and coalesce(j.token = $1 and j.status = 'processing' and j.seq = j.claimed_seq, false)
    returning j.job_id, j.record, j.tenant, j.version, j.attempts, j.claimed_seq, j.started_at,
              j.completed_at, width_bucket(j.job_id, $3::bigint[]) as place),
noted as (
    insert into evervec.attempts
        (record, tenant, version, attempt, seq, started_at, finished_at, outcome, chunks_embedded,
         chunks_reused, tokens, worker)
    select record, tenant, version, attempts, claimed_seq, started_at, completed_at, 'done',
           coalesce(($4::integer[])[place], 0), coalesce(($5::integer[])[place], 0),
           coalesce(($6::integer[])[place], 0), $2
    from done),
ended as (select count(*) as count from done),
let_go as (
    update evervec.claims as c set held = c.held - ended.count::integer
    from ended where c.token = $1 and c.held > ended.count),
gone as (
    delete from evervec.claims as c using ended where c.token = $1 and c.held <= ended.count)
select case when ended.count < cardinality($3::bigint[]) then array(select job_id from done) end
from ended

-- name: reveal_state
select record, state, seq, created_at, version, born from evervec.records
where record = any ($1::bigint[])

-- name: born
select record, case when state = 'deleted' then seq else born end from evervec.records
where record = any ($1::bigint[])

-- name: put_ledger
insert into evervec.ledger as l (record, version, seq, chunks, fence)
select * from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bigint[])
on conflict (record, version) do update
    set seq = excluded.seq, chunks = excluded.chunks, fence = excluded.fence, doubt = null
where excluded.seq >= l.seq

-- name: doubt_ledger
-- a write into an index outside of the store begins
update evervec.ledger as l set doubt = $1
from evervec.jobs as j
where j.job_id = any ($2::bigint[]) and l.record = j.record and l.version = j.version

-- name: drop_ledger
delete from evervec.ledger as l
using unnest($1::bigint[], $2::bigint[], $3::bigint[]) as n (record, version, seq)
where l.record = n.record and l.version = n.version and l.seq <= n.seq

-- name: add_attempts
insert into evervec.attempts
    (record, tenant, version, attempt, seq, started_at, finished_at, outcome, chunks_embedded,
     chunks_reused, tokens, worker, error)
select * from unnest(
    $1::bigint[], $2::text[], $3::bigint[], $4::integer[], $5::bigint[], $6::double precision[],
    $7::double precision[], $8::text[], $9::integer[], $10::integer[], $11::integer[], $12::text[],
    $13::text[])

-- name: put_back
update evervec.jobs as j
set status = n.status, scheduled_for = n.due, attempts = n.attempts,
    crashes = n.crashes, error = n.error, completed_at = n.completed_at, token = null,
    lease_expires_at = null
from unnest($1::text[], $2::double precision[], $3::integer[], $4::integer[], $5::text[],
            $6::double precision[], $7::bigint[])
    as n (status, due, attempts, crashes, error, completed_at, job_id)
where j.job_id = n.job_id

-- name: release
update evervec.jobs as j
set status = 'pending',
    attempts = case when j.seq > j.claimed_seq then 0 else greatest(j.attempts - 1, 0) end,
    error = coalesce($1, j.error), token = null, lease_expires_at = null,
    scheduled_for = case when j.seq > j.claimed_seq then j.scheduled_for
                         else coalesce($2, j.scheduled_for) end
from unnest($3::bigint[], $4::text[]) as n (job_id, token)
where j.job_id = n.job_id and coalesce(j.token = n.token and j.status = 'processing', false)
returning j.job_id

-- name: renew
with sooner as (  -- a lease may be renewed for less than it had
    update evervec.claims set expires_at = evervec.now_seconds() + $1::double precision
    where token = any ($3::text[]) and expires_at > evervec.now_seconds() + $1::double precision)
update evervec.jobs as j
set lease_expires_at = evervec.now_seconds() + $1::double precision
from unnest($2::bigint[], $3::text[]) as n (job_id, token)
where j.job_id = n.job_id and coalesce(j.token = n.token and j.status = 'processing', false)
returning j.job_id

-- name: expired
select job_id from evervec.jobs
where job_id = any (array(
        select unnest(written) from evervec.claims where expires_at < $1 or started_at < $2))
    and status = 'processing' and (lease_expires_at < $1 or started_at < $2)
    and ($3::text is null or tenant = $3)
order by lease_expires_at
limit $4
for update skip locked

-- name: settle_claims
-- those whose time has come: by when the first lease of each ends now, or away with it
with ended as (
    select token, written, case when job_ids <> '{}' then leased_until end as leased_until
    from evervec.claims
    where expires_at < $1 and (job_ids = '{}' or leased_until >= $1)
    for update skip locked),
held as (
    select token, min(lease_expires_at) as leased_until
    from evervec.jobs
    where job_id = any (array(select unnest(written) from ended)) and status = 'processing'
    group by token),
first as (
    select e.token, least(e.leased_until, h.leased_until) as expires_at
    from ended as e left join held as h on h.token = e.token),
moved as (
    update evervec.claims as c set expires_at = f.expires_at
    from first as f where c.token = f.token and f.expires_at is not null)
delete from evervec.claims where token in (select token from first where expires_at is null)

-- name: next_scheduled
-- of one that can be claimed now, and of the first that is for later
select least(
    (select q.scheduled_for from evervec.ready as q
     where not q.later and ($1::bigint[] is null or q.version = any ($1::bigint[]))
     limit 1),
    (select q.scheduled_for from evervec.ready as q
     where q.later and ($1::bigint[] is null or q.version = any ($1::bigint[]))
     order by q.scheduled_for limit 1))

-- name: next_expiry
select min(expires_at) from evervec.claims where expires_at >= $1

-- name: retry_one
update evervec.jobs
set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
    scheduled_for = $1
where job_id = $2 and status = 'failed'

-- name: retry_failed
update evervec.jobs
set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
    scheduled_for = $1
where job_id = any (array(
    select job_id from evervec.jobs
    where failed_at is not null and ($2::text is null or tenant = $2)
        and ($3::bigint is null or attempts < $3)
    order by job_id
    for update)) and status = 'failed'

-- name: lock_job
select 1 from evervec.jobs where job_id = $1 for update

-- name: lock_place
-- where it stands among those that can be claimed, once nobody else moves it
select 1 from evervec.ready as q
join evervec.jobs as j
    on q.later in (false, true) and (q.tenant, q.rank, q.scheduled_for, q.job_id)
        = (j.tenant, -j.priority::bigint, j.scheduled_for, j.job_id)
where j.job_id = $1
for update of q

-- name: drop_job
delete from evervec.jobs where job_id = $1

-- name: drop_jobs
delete from evervec.jobs where job_id = any ($1::bigint[])
returning record

-- name: set_priority
update evervec.jobs set priority = $1 where job_id = $2

-- name: purge_jobs
-- each of the two by its own index
delete from evervec.jobs
where job_id = any (array(
    select job_id from (
        select job_id from evervec.jobs
        where $1 = 'done' and status = 'done' and completed_at < $2
            and ($3::text is null or tenant = $3) and ($4::boolean or box is null)
        limit $5
        for update skip locked) as done
    union all
    select job_id from (
        select job_id from evervec.jobs
        where $1 = 'failed' and failed_at < $2
            and ($3::text is null or tenant = $3) and ($4::boolean or box is null)
        limit $5
        for update skip locked) as failed))
returning record

-- name: orphans
-- jobs of versions that do not exist
select q.job_id from evervec.ready as q
where not exists (select 1 from evervec.versions as v where v.version = q.version)
union all
select j.job_id from evervec.jobs as j
where j.failed_at is not null
    and not exists (select 1 from evervec.versions as v where v.version = j.version)
limit $1

-- name: forsake
-- what never appeared, and no job will make appear, is as good as deleted
update evervec.records as r set state = 'deleted'
where r.record = any ($1::bigint[]) and r.state = 'hidden'
    and not exists (select 1 from evervec.jobs as j where j.record = r.record)

-- name: purge_attempts
delete from evervec.attempts
where ctid = any (array(
    select ctid from evervec.attempts where finished_at < $1 limit $2 for update skip locked))

-- name: forgotten
-- locked: whoever adds one of them anew waits, and finds nothing there
select r.record from evervec.records as r
where r.state = 'deleted' and r.updated_at < $1
    and not exists (select 1 from evervec.jobs as j where j.record = r.record)
order by r.updated_at
limit $2
for update of r skip locked

-- name: still_without_job
select r.record from evervec.records as r
where r.record = any ($1::bigint[])
    and not exists (select 1 from evervec.jobs as j where j.record = r.record)

-- name: forget_records
delete from evervec.records where record = any ($1::bigint[])

-- name: forget_ledger
delete from evervec.ledger where record = any ($1::bigint[])

-- name: forget_removals
delete from evervec.removals where record = any ($1::bigint[])

-- name: points_tables
select c.relname from pg_class as c
where c.relnamespace = 'evervec'::regnamespace and c.relkind = 'r' and c.relname ~ '^points_[0-9]+$'

-- name: horizon_holders
-- transactions that keep old rows from being cleared away: who they are, for how long, and what
-- tells one from the next of the same process. When one began is hidden from roles that may not
-- read all statistics.
select 'process ' || pid || ', ' || coalesce(nullif(application_name, ''), 'no name'),
       extract(epoch from clock_timestamp() - xact_start)::double precision,
       coalesce(backend_xid, backend_xmin)::text
from pg_stat_activity
where coalesce(backend_xid, backend_xmin) is not null and datname = current_database()
    and pid <> pg_backend_pid() and usesysid is not null
    and coalesce(backend_type, 'client backend') = 'client backend'
union all
select 'prepared as ' || gid, extract(epoch from clock_timestamp() - prepared)::double precision, ''
from pg_prepared_xacts where database = current_database()
order by 2 desc nulls last

-- name: pauses
-- tenants whose jobs are not claimed; the empty name stands for all
select tenant from evervec.pauses order by tenant

-- name: pause
insert into evervec.pauses (tenant) values ($1) on conflict do nothing

-- name: resume
delete from evervec.pauses where tenant = $1

-- name: weights
select tenant, weight from evervec.tenants where weight <> 1

-- name: limits
select weight, kinds, records, bytes, chunks, tokens, money from evervec.tenants where tenant = $1

-- name: limited_tenants
select tenant from evervec.tenants order by tenant

-- name: drop_limits
delete from evervec.tenants where tenant = $1

-- name: set_limits
insert into evervec.tenants (tenant, weight, kinds, records, bytes, chunks, tokens, money)
values ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: spent
-- in a day
select coalesce(sum(tokens), 0), coalesce(sum(money), 0) from evervec.spend
where tenant = $1 and day = $2

-- name: hold
select until from evervec.holds where tenant = $1 and until > $2

-- name: add_hold
insert into evervec.holds (tenant, until) values ($1, $2)

-- name: drop_hold
delete from evervec.holds where tenant = $1

-- name: forget_holds
delete from evervec.holds where until <= $1

-- name: held_back
-- tenants whose jobs are not claimed: paused, or with the day's quota used up
select tenant from evervec.pauses
union
select tenant from evervec.holds where until > $1

-- name: usage
-- what is added up, and what came since
select coalesce(sum(u.records), 0), coalesce(sum(u.bytes), 0), coalesce(sum(u.chunks), 0)
from (
    select records, bytes, 0 as chunks from evervec.usage where tenant = $1
    union all
    select records, bytes, 0 from evervec.usage_changes where tenant = $1
    union all
    select 0, 0, c.chunks
    from (select version, chunks from evervec.chunks where tenant = $1
          union all
          select version, chunks from evervec.usage_changes where tenant = $1) as c
    join evervec.versions as v on v.version = c.version and v.state = 'serving') as u

-- name: any_usage_changes
select 1 from evervec.usage_changes limit 1

-- name: fold_usage
-- in one order, so that two who do it never wait for each other
with gone as materialized (
    delete from evervec.usage_changes
    where ctid = any (array(
        select ctid from evervec.usage_changes limit $1 for update skip locked))
    returning tenant, kind, version, records, bytes, chunks),
kinds as (
    insert into evervec.usage as u (tenant, kind, records, bytes)
    select tenant, kind, sum(records), sum(bytes) from gone where kind is not null
    group by tenant, kind order by tenant, kind
    on conflict (tenant, kind) do update
        set records = u.records + excluded.records, bytes = u.bytes + excluded.bytes),
versions as (
    insert into evervec.chunks as c (tenant, version, chunks)
    select tenant, version, sum(chunks) from gone where version is not null
    group by tenant, version order by tenant, version
    on conflict (tenant, version) do update set chunks = c.chunks + excluded.chunks)
select count(*) from gone

-- name: lock_tenant
select pg_advisory_xact_lock(hashtextextended('evervec tenant ' || $1, 0))

-- name: record_sizes
select r.record,
       octet_length(r.text) + coalesce(octet_length(r.title), 0) + coalesce(octet_length(r.data), 0)
       + case when r.metadata = '{}' then 0 else octet_length(r.metadata) end
from evervec.records as r
where r.record = any ($1::bigint[]) and r.state <> 'deleted'

-- name: record_columns
r.tenant, r.kind, r.id, r.seq, r.title, r.text, r.metadata, r.weight, r.created_at, r.updated_at,
exists (
    select 1 from evervec.ledger as l
    join evervec.versions as v on v.version = l.version
    where l.record = r.record and l.seq >= r.seq and l.doubt is null and v.kind = r.kind
        and v.state = 'serving'
) as embedded
from evervec.records as r

-- name: record
where r.tenant = $1 and r.kind = $2 and r.id = $3 and r.state = 'live'

-- name: jobs_by_id
where j.job_id = any ($1::bigint[])

-- name: job_by_id
where j.job_id = $1 and ($2::text is null or j.tenant = $2)

-- name: history
select a.attempt, a.seq, a.worker, a.started_at, a.finished_at, a.outcome, a.error,
       a.chunks_embedded, a.chunks_reused, a.tokens
from evervec.records as r
join evervec.attempts as a on a.record = r.record
where r.tenant = $1 and r.kind = $2 and r.id = $3
order by a.number

-- name: failed_count
select count(*) from evervec.jobs where failed_at is not null

-- name: job_stats
-- in one look at all jobs: no index knows those that are done
with waiting as (
    select count(*) as count, min(scheduled_for) as oldest from evervec.ready
    where $1::text is null or tenant = $1)
select (select count from waiting),
       count(*) filter (where status in ('pending', 'processing')) - (select count from waiting),
       count(*) filter (where status = 'done'),
       count(*) filter (where status = 'failed'),
       count(distinct record) filter (where status in ('pending', 'processing')),
       (select oldest from waiting),
       max(completed_at) filter (where status = 'done'),
       coalesce(
           avg(completed_at - started_at) filter (where status = 'done' and completed_at > $2),
           avg(completed_at - started_at) filter (where status = 'done'))
from evervec.jobs
where $1::text is null or tenant = $1

-- name: waiting_since
select min(scheduled_for) from evervec.ready
where rank < -$1::bigint and tenant <> all (array(
    select tenant from evervec.pauses union all select tenant from evervec.holds))

-- name: settled
-- how records stand with the version that serves, and what is to come of any
select r.tenant, r.kind, r.id, r.state, r.seq, r.born, j.status, j.finished_seq, l.seq,
       (select max(case when o.op = 'load' then o.seq else coalesce(o.box_seq, o.seq) end)
        from evervec.jobs as o
        where o.record = r.record and (o.op = 'load' or o.op = 'open' and o.box is not null)),
       exists (select 1 from evervec.jobs as o
               where o.record = r.record and o.status in ('pending', 'processing'))
from unnest($1::text[], $2::text[], $3::text[]) as k (tenant, kind, id)
join evervec.records as r on (r.tenant, r.kind, r.id) = (k.tenant, k.kind, k.id)
left join evervec.versions as s on s.kind = r.kind and s.state = 'serving'
left join evervec.jobs as j on j.record = r.record and j.version = s.version
left join evervec.ledger as l on l.record = r.record and l.version = s.version

-- name: serving_job
select j.job_id
from evervec.records as r
join evervec.versions as s on s.kind = r.kind and s.state = 'serving'
join evervec.jobs as j on j.record = r.record and j.version = s.version
where r.tenant = $1 and r.kind = $2 and r.id = $3

-- name: mark
-- another one after the end of every transaction that wrote
select hashtextextended(pg_current_snapshot()::text, 0)

-- name: match_text
select r.record, ts_rank(array[0, 0, 0.5, 1], r.words, q.words, 1)::double precision as score
from evervec.records as r
cross join (select {words} as words) as q
where r.words @@ ($4::tsquery && q.words) and r.state = 'live' and r.tenant = $1
    and ($2::text is null or r.kind = $2){filter}
order by score desc, r.record
limit $3

-- name: contains_text
select r.record, 1.0::double precision from evervec.records as r
where r.tenant = $1 and r.state = 'live' and ($2::text is null or r.kind = $2)
    and coalesce(r.title, '') || ' ' || r.text ilike $4{filter}
order by r.record desc
limit $3

-- name: candidates
select r.record, r.kind, r.weight, r.updated_at
from evervec.records as r
where r.record = any ($1::bigint[]) and r.tenant = $2 and r.state = 'live'

-- name: found
select r.record, r.kind, r.id, r.title, r.text, r.metadata
from evervec.records as r
where r.record = any ($1::bigint[]) and r.state = 'live'

-- name: ledgers
select r.record, l.chunks
from evervec.records as r
join evervec.ledger as l
    on l.record = r.record and l.version = any ($2::bigint[]) and l.seq >= r.seq
where r.record = any ($1::bigint[])

-- name: expected
select r.record, r.tenant, r.kind, r.id, r.state, r.seq, l.seq, coalesce(l.fence, l.seq),
       l.doubt is not null, l.chunks,
       (select v.cut_since from evervec.versions as v where v.version = $1), j.status
from evervec.records as r
left join evervec.ledger as l on l.record = r.record and l.version = $1
left join evervec.jobs as j on j.record = r.record and j.version = $1
where r.record > $2 and r.kind = (select v.kind from evervec.versions as v where v.version = $1)
    and ($3::text is null or r.tenant = $3)
order by r.record
limit $4

-- name: digests
select r.id, r.state, r.hash, r.metadata, r.weight,
       exists (select 1 from evervec.jobs as j
               where j.record = r.record and j.status in ('pending', 'processing'))
from evervec.records as r
where r.tenant = $1 and r.kind = $2 and r.id = any ($3)

-- name: sizes
select coalesce(sum(length(r.text) + coalesce(length(r.title), 0)), 0)
from evervec.records as r
where r.record = any ($1)

-- name: typed
select r.record, r.tenant, r.id, r.seq, r.hash, r.data, r.title, r.metadata, r.weight,
       r.created_at, r.updated_at
from evervec.records as r
where r.record > $1 and r.kind = $2 and r.state = 'live' and r.data is not null
order by r.record
limit $3

-- name: reopen
select r.record, r.tenant, r.kind, r.state
from evervec.records as r
where r.record = any ($1::bigint[])
    and exists (select 1 from evervec.versions as v where v.version = $2 and v.state <> 'retired')
order by r.record

-- name: take_lock
insert into evervec.locks as l (name, holder, token, expires_at) values ($1, $2, $3, $4)
on conflict (name) do update
    set holder = excluded.holder, token = excluded.token, expires_at = excluded.expires_at
    where l.expires_at < $5 or l.holder = excluded.holder
returning token

-- name: lock_holder
select holder, token from evervec.locks where name = $1

-- name: drop_lock
delete from evervec.locks where name = $1 and token = $2

-- name: forget_locks
delete from evervec.locks where expires_at < $1

-- name: note
select value, revision from evervec.notes where name = $1

-- name: add_note
insert into evervec.notes (name, value, revision) values ($1, $2, $3) on conflict do nothing

-- name: set_note
update evervec.notes set value = $1, revision = revision + 1 where name = $2 and revision = $3

-- name: drop_note
delete from evervec.notes where name = $1 and revision = $2

-- name: add_spend
insert into evervec.spend as s (day, tenant, kind, model, calls, tokens, money)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict (day, tenant, kind, model) do update set
    calls = s.calls + excluded.calls, tokens = s.tokens + excluded.tokens,
    money = s.money + excluded.money

-- name: spend
select day, tenant, kind, model, calls, tokens, money from evervec.spend
where day >= $1 and ($2::text is null or tenant = $2)
order by day desc, tenant, kind, model

-- name: purge_spend
delete from evervec.spend where day < $1

-- name: cached
select hash, vector from evervec.cache where model = $1 and hash = any ($2)

-- name: add_cached
insert into evervec.cache (model, hash, vector) values ($1, $2, $3) on conflict do nothing

-- name: trim_cache
delete from evervec.cache where number <= (select max(number) from evervec.cache) - $1

-- name: beat
insert into evervec.workers (worker, version, started_at, seen_at, held, done)
values ($1, $2, $3, $3, $4, $5)
on conflict (worker) do update
    set version = excluded.version, seen_at = excluded.seen_at, held = excluded.held,
        done = excluded.done

-- name: forget_workers
delete from evervec.workers where seen_at < $1

-- name: leave
delete from evervec.workers where worker = $1

-- name: workers
select worker, version, started_at, seen_at, held, done from evervec.workers order by worker

-- name: health
-- what evervec needs of a server, as this user finds it
select pg_is_in_recovery(),
       has_schema_privilege('evervec', 'create'),
       has_database_privilege(current_database(), 'create'),
       (select default_version from pg_available_extensions where name = 'vector'),
       (select extversion from pg_extension where extname = 'vector')

-- name: begin_version
insert into evervec.versions (version, kind, state, name, provider, model, dimensions, created_at)
values ($1, $2, 'building', $3, $4, $5, $6, $7)

-- name: to_appear
-- what the serving version's jobs still have to load, and the other has no job for
select j.record, j.tenant, j.op, j.priority, j.scheduled_for, j.seq, j.max_attempts, j.box
from evervec.versions as v
join evervec.versions as s on s.kind = v.kind and s.state = 'serving'
join evervec.jobs as j on j.version = s.version
left join evervec.jobs as n on n.record = j.record and n.version = v.version
where v.version = $1 and j.op = 'load' and j.status <> 'done' and n.job_id is null
order by j.record
limit $2

-- name: stray_boxes
-- of versions that do not serve
select j.job_id, j.record, j.tenant, coalesce(j.box_seq, j.seq), j.priority, j.scheduled_for,
       j.max_attempts, j.box
from evervec.jobs as j
join evervec.records as r on r.record = j.record
left join evervec.versions as v on v.version = j.version
where j.op = 'open' and j.status <> 'done' and j.box is not null
    and (v.state is null or v.state <> 'serving')
    and exists (select 1 from evervec.versions as s where s.kind = r.kind and s.state = 'serving')
order by j.record
limit $1

-- name: rivals
-- the versions that a change of each record has to reach, with the record's jobs for them
select r.record, r.seq, v.version, v.state = 'serving', j.op,
       case when j.op = 'open' then coalesce(j.box_seq, j.seq) else j.seq end
from evervec.records as r
join evervec.versions as v on v.kind = r.kind and v.state <> 'retired'
left join evervec.jobs as j on j.record = r.record and j.version = v.version
where r.record = any ($1::bigint[])
order by r.record, v.version

-- name: progress
select count(*), coalesce(sum(case when l.seq >= r.seq and l.doubt is null then 1 else 0 end), 0)
from evervec.versions as v
join evervec.records as r on r.kind = v.kind and r.state = 'live'
left join evervec.ledger as l on l.record = r.record and l.version = v.version
where v.version = $1

-- name: version_jobs
select coalesce(sum(case when status in ('pending', 'processing') then 1 else 0 end), 0),
       coalesce(sum(case when status = 'failed' then 1 else 0 end), 0)
from evervec.jobs
where version = $1

-- name: behind
-- records that the serving version has in a later state than this one
select count(*)
from evervec.versions as v
join evervec.versions as s on s.kind = v.kind and s.state = 'serving'
join evervec.jobs as j on j.version = v.version and j.status <> 'done'
join evervec.ledger as theirs on theirs.record = j.record and theirs.version = s.version
left join evervec.ledger as mine
    on mine.record = j.record and mine.version = v.version and mine.doubt is null
where v.version = $1 and theirs.seq > coalesce(mine.seq, 0)

-- name: stand_by
update evervec.versions set state = 'standby'
where state = 'serving' and kind in (select kind from evervec.versions where version = any ($1::bigint[]))

-- name: serve
update evervec.versions set state = 'serving' where version = any ($1::bigint[])

-- name: retire
update evervec.versions set state = 'retired' where version = any ($1::bigint[]) and state <> 'serving'

-- name: drop_version_jobs
delete from evervec.jobs
where job_id in (select job_id from evervec.jobs where version = $1 limit $2)

-- name: drop_version_ledger
delete from evervec.ledger
where version = $1
    and record in (select record from evervec.ledger where version = $1 limit $2)

-- name: forget_version
delete from evervec.versions where version = $1 and state = 'retired'

-- name: open_transactions
-- of this database, whoever they belong to
select l.virtualtransaction
from pg_locks as l
join pg_stat_activity as a on a.pid = l.pid
join pg_database as d on d.oid = a.datid and d.datname = current_database()
where l.locktype = 'virtualxid' and l.virtualxid = l.virtualtransaction
    and l.pid <> pg_backend_pid() and coalesce(a.backend_type, 'client backend') = 'client backend'

-- name: prepared_transactions
select 'prepared ' || transaction::text
from pg_prepared_xacts
where database = current_database()

-- name: halt_finishes
lock table evervec.ledger in share mode

-- ---- the service: keys, and requests that may come again ----

-- name: key_columns
id, hash, tenant, agent, role, created_at, expires_at, last_used_at, revoked_at, parent, kinds

-- name: add_key
insert into evervec.keys
    (id, hash, tenant, agent, role, created_at, expires_at, last_used_at, revoked_at, parent,
     kinds)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: keys
from evervec.keys where parent is null and ($1::text is null or tenant = $1) order by created_at, id

-- name: any_keys
select exists (select 1 from evervec.keys)

-- name: find_keys
from evervec.keys where id = any ($1)

-- name: revoke_key
update evervec.keys set revoked_at = $1 where id = $2 and revoked_at is null

-- name: use_key
update evervec.keys set last_used_at = greatest($1, last_used_at) where id = $2

-- name: expire_key
update evervec.keys
set expires_at = least(expires_at, $1)
where id = $2 and parent is null and revoked_at is null
    and (expires_at is null or expires_at > $3)

-- name: count_tokens
select count(*) from evervec.keys where parent = $1 and created_at > $2

-- name: forget_tokens
delete from evervec.keys where parent is not null and expires_at < $1

-- name: add_audit
insert into evervec.audit
    (noted_at, key_id, agent, tenant, action, target, outcome, request_id, client)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: audit
select noted_at, key_id, agent, tenant, action, target, outcome, request_id, client, entry
from evervec.audit
where ($1::text is null or tenant = $1) and ($2::text is null or action = $2)
    and ($3::text is null or key_id = $3) and ($4::bigint is null or entry < $4)
    and ($5::double precision is null or noted_at >= $5)
order by entry desc limit $6

-- name: forget_audit
delete from evervec.audit where noted_at < $1

-- name: add_asked
insert into evervec.asked (tenant, name, fingerprint, asked_at) values ($1, $2, $3, $4)
on conflict do nothing

-- name: asked
select fingerprint, answer from evervec.asked where tenant = $1 and name = $2

-- name: count_asked
select count(*) from (select 1 from evervec.asked where tenant = $1 limit $2) as kept

-- name: answer
update evervec.asked set answer = $1 where tenant = $2 and name = $3

-- name: forget_asked
delete from evervec.asked where asked_at < $1

-- name: holdings
select v.kind, v.name, count(l.record), max(j.completed_at) filter (where j.status = 'done')
from evervec.versions as v
join evervec.records as r on r.tenant = $1 and r.kind = v.kind
left join evervec.ledger as l on l.record = r.record and l.version = v.version
left join evervec.jobs as j on j.record = r.record and j.version = v.version
group by v.version, v.kind, v.name
