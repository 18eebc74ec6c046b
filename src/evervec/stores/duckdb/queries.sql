-- Every query of the DuckDB store by name. Lists come in as arrays.

-- name: try_write
-- changes nothing, and is undone
update evervec_meta set value = value where key = 'counter'

-- name: targets
select version from evervec_versions
where kind = $1 and state <> 'retired'
order by state <> 'serving', version

-- name: add_version
insert into evervec_versions (version, kind, state, created_at) values ($1, $2, 'serving', $3)

-- name: collections
select version, kind, state, chunker, app, cut_since, name, provider, model, dimensions
from evervec_versions
order by version

-- name: loaded_kinds
-- whose rows a loader gives
select distinct kind from evervec_versions where list_contains($1::varchar[], kind) and app = 1

-- name: need_app
update evervec_versions set app = 1 where kind = $1 and app = 0

-- name: adopt
update evervec_versions set name = $1, provider = $2, model = $3, dimensions = $4
where name = ''

-- name: describe_version
update evervec_versions
set cut_since = case when chunker in ('', $1) then cut_since else $2 end, chunker = $1, app = $3
where version = $4

-- name: versions
select v.name, v.kind, v.provider, v.model, v.dimensions, v.state,
       coalesce(l.count, 0), v.last_sync_at, v.chunker, v.created_at
from evervec_versions as v
left join (select version, count(*) as count from evervec_ledger group by version) as l
    on l.version = v.version
order by v.kind, v.version

-- name: touch_versions
update evervec_versions set last_sync_at = $1 where version = any ($2::bigint[])

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
    select unnest($1::bigint[]) as record, unnest($2::varchar[]) as state,
           unnest($3::bigint[]) as seq, unnest($4::bigint[]) as born, unnest($5::blob[]) as hash,
           unnest($6::double[]) as weight, unnest($7::double[]) as created_at,
           unnest($8::double[]) as updated_at, unnest($9::bigint[]) as version,
           unnest($10::varchar[]) as title, unnest($11::varchar[]) as metadata,
           unnest($12::varchar[]) as data, unnest($13::varchar[]) as text,
           unnest($14::varchar[]) as title_words, unnest($15::varchar[]) as text_words) as n
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
-- an upsert would take four times as long as this does for jobs that are there
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
    -- a waiting job keeps its place; one in process may wait for its next pass
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
    select unnest($1::bigint[]) as record, unnest($2::bigint[]) as version,
           unnest($3::varchar[]) as op, unnest($4::bigint[]) as priority,
           unnest($5::double[]) as scheduled_for, unnest($6::bigint[]) as seq,
           unnest($7::bigint[]) as max_attempts, unnest($8::varchar[]) as box,
           unnest($9::bigint[]) as box_seq, unnest($10::varchar[]) as trace) as n
where j.record = n.record and j.version = n.version
returning j.record, j.version

-- name: owed
-- what jobs have yet to read; see `debt` in transitions.py
select record, op, box, coalesce(box_seq, seq) from evervec_jobs
where record in (select unnest($1::bigint[])) and op in ('load', 'open') and status <> 'done'

-- name: job_columns
j.job_id, j.tenant, r.kind, r.id, j.version, j.op, j.seq, j.claimed_seq, j.status, j.priority,
j.attempts, j.max_attempts, j.error, j.token, j.created_at, j.scheduled_for, j.started_at,
j.completed_at, j.lease_expires_at, j.record, j.worker, j.crashes
from evervec_jobs as j
join evervec_records as r on r.record = j.record

-- name: versions_stamp
select coalesce(bit_xor(hash(
    version, kind, state, chunker, app, cut_since, name, provider, model, dimensions)), 0)
from evervec_versions

-- name: kinds
-- of which a tenant has records
select distinct kind from evervec_records where tenant = $1 order by kind

-- name: due_any
select 1 from evervec_jobs
where status = 'pending' and scheduled_for <= $1 and not list_contains($2::varchar[], tenant)
limit 1

-- name: first_due
-- the first so many of each tenant; $3: versions whose jobs are left for others
select tenant, arg_min(job_id, (-priority, scheduled_for, job_id), $1::bigint)
from evervec_jobs
where status = 'pending' and scheduled_for <= $2 and crashes <= $4
    and op in ('embed', 'open', 'load', 'delete')
    and ($3::bigint[] is null
         or not list_contains($3::bigint[], version)
             and version in (select version from evervec_versions))
    and not list_contains($5::varchar[], tenant)
group by tenant
order by tenant

-- name: due_jobs
-- what a lease does not set anew
select j.job_id, j.tenant, r.kind, r.id, j.version, j.op, j.seq, j.priority, j.attempts,
       j.max_attempts, j.error, j.created_at, j.scheduled_for, j.completed_at, j.record, j.crashes
from evervec_jobs as j
join evervec_records as r on r.record = j.record
where j.job_id in (select unnest($1::bigint[]))

-- name: lease
update evervec_jobs
set status = 'processing', token = $1, worker = $2, started_at = $3, lease_expires_at = $4,
    claimed_seq = seq, attempts = attempts + 1
where job_id in (select unnest($5::bigint[]))

-- name: load
-- the first so many whose texts fit together, and at least one. Of an entry in doubt nothing is
-- known to be in the index.
select op, seq, state, title, text, metadata, weight, updated_at, chunks, box, trace, box_seq
from (
    select j.op, j.seq, r.state, r.title, r.text, r.metadata, r.weight, r.updated_at, l.chunks,
           j.box, j.trace, j.box_seq, w.place,
           sum(coalesce(length(r.text), 0) + coalesce(length(j.box), 0))
               over (order by w.place) as upto
    from (
        select unnest($1::bigint[]) as job_id, generate_subscripts($1::bigint[], 1) as place) as w
    left join evervec_jobs as j on j.job_id = w.job_id
    left join evervec_records as r on r.record = j.record
    left join evervec_ledger as l
        on l.record = j.record and l.version = j.version and l.doubt is null) as f
where place = 1 or upto <= $2
order by place

-- name: standing
select job_id, status, op, seq, claimed_seq, finished_seq, token, attempts, max_attempts, crashes,
       box is not null, priority, scheduled_for, error, completed_at, started_at, lease_expires_at
from evervec_jobs
where job_id in (select unnest($1::bigint[]))

-- name: finish
update evervec_jobs as j
set status = case when j.seq > n.seq then 'pending' else 'done' end,
    attempts = case when j.seq > n.seq then 0 else j.attempts end,
    box = case when j.seq > n.seq then j.box end,
    finished_seq = n.seq, completed_at = $1, lease_expires_at = null, error = null, crashes = 0
from (select unnest($2::bigint[]) as seq, unnest($3::bigint[]) as job_id) as n
where j.job_id = n.job_id

-- name: finish_untouched
-- jobs that are still as they were claimed
update evervec_jobs as j
set status = 'done', box = null, finished_seq = j.claimed_seq, completed_at = $2,
    lease_expires_at = null, error = null, crashes = 0
from (select unnest($3::bigint[]) as job_id, unnest($4::bigint[]) as seq) as n
where j.job_id = n.job_id and j.token = $1 and j.status = 'processing'
    and j.seq = j.claimed_seq and j.claimed_seq = n.seq
returning j.job_id

-- name: add_done_attempts
insert into evervec_attempts
    (record, tenant, version, attempt, seq, started_at, finished_at, outcome, chunks_embedded,
     chunks_reused, tokens, worker)
select j.record, j.tenant, j.version, j.attempts, j.claimed_seq, j.started_at, j.completed_at,
       'done', n.embedded, n.reused, n.tokens, n.worker
from (
    select unnest($1::bigint[]) as job_id, unnest($2::bigint[]) as embedded,
           unnest($3::bigint[]) as reused, unnest($4::bigint[]) as tokens,
           unnest($5::varchar[]) as worker) as n
join evervec_jobs as j on j.job_id = n.job_id

-- name: reveal_state
select record, state, seq, created_at, version, born from evervec_records
where record in (select unnest($1::bigint[]))

-- name: born
select record, case when state = 'deleted' then seq else born end from evervec_records
where record in (select unnest($1::bigint[]))

-- name: put_ledger
merge into evervec_ledger as l
using (
    select unnest($1::bigint[]) as record, unnest($2::bigint[]) as version,
           unnest($3::bigint[]) as seq, unnest($4::blob[]) as chunks,
           unnest($5::bigint[]) as fence) as n
on l.record = n.record and l.version = n.version
when matched and n.seq >= l.seq then
    update set seq = n.seq, chunks = n.chunks, fence = n.fence, doubt = null
when not matched then
    insert (record, version, seq, chunks, fence)
    values (n.record, n.version, n.seq, n.chunks, n.fence)

-- name: doubt_ledger
-- a write into an index outside of the store begins
update evervec_ledger as l set doubt = $1
from evervec_jobs as j
where j.job_id in (select unnest($2::bigint[])) and l.record = j.record and l.version = j.version

-- name: drop_ledger
delete from evervec_ledger as l
using (
    select unnest($1::bigint[]) as record, unnest($2::bigint[]) as version,
           unnest($3::bigint[]) as seq) as n
where l.record = n.record and l.version = n.version and l.seq <= n.seq

-- name: add_attempts
insert into evervec_attempts
    (record, tenant, version, attempt, seq, started_at, finished_at, outcome, chunks_embedded,
     chunks_reused, tokens, worker, error)
select unnest($1::bigint[]), unnest($2::varchar[]), unnest($3::bigint[]), unnest($4::bigint[]),
       unnest($5::bigint[]), unnest($6::double[]), unnest($7::double[]), unnest($8::varchar[]),
       unnest($9::bigint[]), unnest($10::bigint[]), unnest($11::bigint[]), unnest($12::varchar[]),
       unnest($13::varchar[])

-- name: put_back
update evervec_jobs as j
set status = n.status, scheduled_for = n.due, attempts = n.attempts,
    crashes = n.crashes, error = n.error, completed_at = n.completed_at, token = null,
    lease_expires_at = null
from (
    select unnest($1::varchar[]) as status, unnest($2::double[]) as due,
           unnest($3::bigint[]) as attempts, unnest($4::bigint[]) as crashes,
           unnest($5::varchar[]) as error, unnest($6::double[]) as completed_at,
           unnest($7::bigint[]) as job_id) as n
where j.job_id = n.job_id

-- name: release
update evervec_jobs as j
set status = 'pending',
    attempts = case when j.seq > j.claimed_seq then 0 else greatest(j.attempts - 1, 0) end,
    error = coalesce($1, j.error), token = null, lease_expires_at = null,
    scheduled_for = case when j.seq > j.claimed_seq then j.scheduled_for
                         else coalesce($2, j.scheduled_for) end
from (select unnest($3::bigint[]) as job_id, unnest($4::varchar[]) as token) as n
where j.job_id = n.job_id and j.token = n.token and j.status = 'processing'
returning j.job_id

-- name: renew
update evervec_jobs as j
set lease_expires_at = $1
from (select unnest($2::bigint[]) as job_id, unnest($3::varchar[]) as token) as n
where j.job_id = n.job_id and j.token = n.token and j.status = 'processing'
returning j.job_id

-- name: expired
where j.status = 'processing' and j.lease_expires_at < $1
    and ($2::varchar is null or j.tenant = $2)
order by j.lease_expires_at
limit $3

-- name: stuck
where j.status = 'processing' and (j.lease_expires_at < $1 or j.started_at < $4)
    and ($2::varchar is null or j.tenant = $2)
order by j.lease_expires_at
limit $3

-- name: next_scheduled
select min(scheduled_for) from evervec_jobs
where status = 'pending' and ($1::bigint[] is null or version = any ($1::bigint[]))

-- name: next_expiry
select min(lease_expires_at) from evervec_jobs
where status = 'processing' and lease_expires_at >= $1

-- name: retry_one
update evervec_jobs
set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
    scheduled_for = $1
where job_id = $2 and status = 'failed'

-- name: retry_failed
update evervec_jobs
set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
    scheduled_for = $1
where status = 'failed' and ($2::varchar is null or tenant = $2)
    and ($3::bigint is null or attempts < $3)

-- name: drop_job
delete from evervec_jobs where job_id = $1

-- name: drop_jobs
delete from evervec_jobs where job_id in (select unnest($1::bigint[]))
returning record

-- name: set_priority
update evervec_jobs set priority = $1 where job_id = $2

-- name: purge_jobs
delete from evervec_jobs
where job_id in (
    select job_id from evervec_jobs
    where status = $1 and completed_at < $2 and ($3::varchar is null or tenant = $3)
        and ($4::boolean or box is null)
    order by completed_at
    limit $5)
returning record

-- name: orphans
-- jobs of versions that do not exist
select job_id from evervec_jobs
where status = 'pending' and version not in (select version from evervec_versions)
union all
select job_id from evervec_jobs
where status = 'failed' and version not in (select version from evervec_versions)
limit $1

-- name: forsake
-- what never appeared, and no job will make appear, is as good as deleted
update evervec_records as r set state = 'deleted'
where r.record in (select unnest($1::bigint[])) and r.state = 'hidden'
    and r.record not in (select j.record from evervec_jobs as j)

-- name: purge_attempts
delete from evervec_attempts
where number in (
    select number
    from (select number, finished_at from evervec_attempts order by number limit $2) as oldest
    where finished_at < $1)

-- name: purge_removed
delete from evervec_removed
where removal in (
    select removal
    from (select removal, removed_at from evervec_removed order by removal limit $2) as oldest
    where removed_at < $1)
returning removal

-- name: removals_purged
update evervec_meta set value = greatest(value, $1) where key = 'removals_purged'

-- name: forgotten
select r.record from evervec_records as r
where r.state = 'deleted' and r.updated_at < $1
    and r.record not in (select j.record from evervec_jobs as j)
order by r.updated_at
limit $2

-- name: forget_records
delete from evervec_records where record in (select unnest($1::bigint[]))

-- name: forget_ledger
delete from evervec_ledger where record in (select unnest($1::bigint[]))

-- name: forget_points
delete from evervec_points where record in (select unnest($1::bigint[]))

-- name: pauses
-- tenants whose jobs are not claimed; the empty name stands for all
select tenant from evervec_pauses order by tenant

-- name: pause
insert into evervec_pauses (tenant) values ($1) on conflict do nothing

-- name: resume
delete from evervec_pauses where tenant = $1

-- name: weights
select tenant, weight from evervec_tenants where weight <> 1

-- name: limits
select weight, kinds, records, bytes, chunks, tokens, money from evervec_tenants where tenant = $1

-- name: limited_tenants
select tenant from evervec_tenants order by tenant

-- name: drop_limits
delete from evervec_tenants where tenant = $1

-- name: set_limits
insert into evervec_tenants (tenant, weight, kinds, records, bytes, chunks, tokens, money)
values ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: spent
-- in a day
select coalesce(sum(tokens), 0), coalesce(sum(money), 0) from evervec_spend
where tenant = $1 and day = $2

-- name: hold
select until from evervec_holds where tenant = $1 and until > $2

-- name: add_hold
insert into evervec_holds (tenant, until) values ($1, $2)

-- name: drop_hold
delete from evervec_holds where tenant = $1

-- name: forget_holds
delete from evervec_holds where until <= $1

-- name: held_back
-- tenants whose jobs are not claimed: paused, or with the day's quota used up
select tenant from evervec_pauses
union
select tenant from evervec_holds where until > $1

-- name: usage
select (select coalesce(sum(records), 0) from evervec_usage where tenant = $1),
       (select coalesce(sum(bytes), 0) from evervec_usage where tenant = $1),
       (select coalesce(sum(c.chunks), 0) from evervec_chunks as c
        join evervec_versions as v on v.version = c.version and v.state = 'serving'
        where c.tenant = $1)

-- name: held_usage
-- of some records, as it is counted
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

-- name: version_records
select record from evervec_ledger where version = $1 limit $2

-- name: record_sizes
select r.record,
       strlen(r.text) + coalesce(strlen(r.title), 0) + coalesce(strlen(r.data), 0)
       + case when r.metadata = '{}' then 0 else strlen(r.metadata) end
from evervec_records as r
where r.record in (select unnest($1::bigint[])) and r.state <> 'deleted'

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

-- name: jobs_by_id
where j.job_id in (select unnest($1::bigint[]))

-- name: job_by_id
where j.job_id = $1 and ($2::varchar is null or j.tenant = $2)

-- name: history
select a.attempt, a.seq, a.worker, a.started_at, a.finished_at, a.outcome, a.error,
       a.chunks_embedded, a.chunks_reused, a.tokens
from evervec_records as r
join evervec_attempts as a on a.record = r.record
where r.tenant = $1 and r.kind = $2 and r.id = $3
order by a.number

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
-- how records stand with the version that serves, and what is to come of any
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

-- name: serving_job
select j.job_id
from evervec_records as r
join evervec_versions as s on s.kind = r.kind and s.state = 'serving'
join evervec_jobs as j on j.record = r.record and j.version = s.version
where r.tenant = $1 and r.kind = $2 and r.id = $3

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

-- name: digests
select r.id, r.state, r.hash, r.metadata, r.weight,
       exists (select 1 from evervec_jobs as j
               where j.record = r.record and j.status in ('pending', 'processing'))
from evervec_records as r
where r.tenant = $1 and r.kind = $2 and r.id in (select unnest($3::varchar[]))

-- name: sizes
select coalesce(sum(length(r.text) + coalesce(length(r.title), 0)), 0)::bigint
from evervec_records as r
where r.record in (select unnest($1::bigint[]))

-- name: typed
select r.record, r.tenant, r.id, r.seq, r.hash, r.data, r.title, r.metadata, r.weight,
       r.created_at, r.updated_at
from evervec_records as r
where r.record > $1 and r.kind = $2 and r.state = 'live' and r.data is not null
order by r.record
limit $3

-- name: reopen
select r.record, r.tenant, r.kind, r.state
from evervec_records as r
where r.record in (select unnest($1::bigint[]))
    and exists (select 1 from evervec_versions as v where v.version = $2 and v.state <> 'retired')
order by r.record

-- name: take_lock
merge into evervec_locks as l
using (
    select $1::varchar as name, $2::varchar as holder, $3::varchar as token,
           $4::double as expires_at) as n
on l.name = n.name
when matched and (l.expires_at < $5 or l.holder = n.holder)
    then update set holder = n.holder, token = n.token, expires_at = n.expires_at
when not matched then insert values (n.name, n.holder, n.token, n.expires_at)
returning token

-- name: lock_holder
select holder, token from evervec_locks where name = $1

-- name: drop_lock
delete from evervec_locks where name = $1 and token = $2

-- name: forget_locks
delete from evervec_locks where expires_at < $1

-- name: note
select value, revision from evervec_notes where name = $1

-- name: add_note
insert into evervec_notes (name, value, revision)
select $1, $2, $3 where $1 not in (select name from evervec_notes)

-- name: set_note
update evervec_notes set value = $1, revision = revision + 1 where name = $2 and revision = $3

-- name: drop_note
delete from evervec_notes where name = $1 and revision = $2

-- name: add_spend
merge into evervec_spend as s
using (
    select $1::varchar as day, $2::varchar as tenant, $3::varchar as kind, $4::varchar as model,
           $5::double as calls, $6::bigint as tokens, $7::double as money) as n
on s.day = n.day and s.tenant = n.tenant and s.kind = n.kind and s.model = n.model
when matched then update
    set calls = s.calls + n.calls, tokens = s.tokens + n.tokens, money = s.money + n.money
when not matched then insert values (n.day, n.tenant, n.kind, n.model, n.calls, n.tokens, n.money)

-- name: spend
select day, tenant, kind, model, calls, tokens, money from evervec_spend
where day >= $1 and ($2::varchar is null or tenant = $2)
order by day desc, tenant, kind, model

-- name: purge_spend
delete from evervec_spend where day < $1

-- name: cached
select hash, vector from evervec_cache
where model = $1 and hash in (select unnest($2::varchar[]))

-- name: add_cached
insert into evervec_cache (model, hash, vector)
select $1, n.hash, n.vector
from (select unnest($2::varchar[]) as hash, unnest($3::blob[]) as vector) as n
where n.hash not in (select c.hash from evervec_cache as c where c.model = $1)

-- name: trim_cache
delete from evervec_cache where number <= (select max(number) from evervec_cache) - $1

-- name: beat
merge into evervec_workers as w
using (
    select $1::varchar as worker, $2::varchar as version, $3::double as now,
           $4::integer as held, $5::bigint as done) as n
on w.worker = n.worker
when matched then update
    set version = n.version, seen_at = n.now, held = n.held, done = n.done
when not matched then insert values (n.worker, n.version, n.now, n.now, n.held, n.done)

-- name: forget_workers
delete from evervec_workers where seen_at < $1

-- name: leave
delete from evervec_workers where worker = $1

-- name: workers
select worker, version, started_at, seen_at, held, done from evervec_workers order by worker

-- name: begin_version
insert into evervec_versions (version, kind, state, name, provider, model, dimensions, created_at)
values ($1, $2, 'building', $3, $4, $5, $6, $7)

-- name: to_appear
-- what the serving version's jobs still have to load, and the other has no job for
select j.record, j.tenant, j.op, j.priority, j.scheduled_for, j.seq, j.max_attempts, j.box
from evervec_versions as v
join evervec_versions as s on s.kind = v.kind and s.state = 'serving'
join evervec_jobs as j on j.version = s.version
left join evervec_jobs as n on n.record = j.record and n.version = v.version
where v.version = $1 and j.op = 'load' and j.status <> 'done' and n.job_id is null
order by j.record
limit $2

-- name: stray_boxes
-- of versions that do not serve
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
-- the versions that a change of each record has to reach, with the record's jobs for them
select r.record, r.seq, v.version, v.state = 'serving', j.op,
       case when j.op = 'open' then coalesce(j.box_seq, j.seq) else j.seq end
from evervec_records as r
join evervec_versions as v on v.kind = r.kind and v.state <> 'retired'
left join evervec_jobs as j on j.record = r.record and j.version = v.version
where r.record in (select unnest($1::bigint[]))
order by r.record, v.version

-- name: progress
select count(*), coalesce(sum(case when l.seq >= r.seq and l.doubt is null then 1 else 0 end), 0)
from evervec_versions as v
join evervec_records as r on r.kind = v.kind and r.state = 'live'
left join evervec_ledger as l on l.record = r.record and l.version = v.version
where v.version = $1

-- name: version_jobs
select coalesce(sum(case when status in ('pending', 'processing') then 1 else 0 end), 0),
       coalesce(sum(case when status = 'failed' then 1 else 0 end), 0)
from evervec_jobs
where version = $1

-- name: behind
-- records that the serving version has in a later state than this one
select count(*)
from evervec_versions as v
join evervec_versions as s on s.kind = v.kind and s.state = 'serving'
join evervec_jobs as j on j.version = v.version and j.status <> 'done'
join evervec_ledger as theirs on theirs.record = j.record and theirs.version = s.version
left join evervec_ledger as mine
    on mine.record = j.record and mine.version = v.version and mine.doubt is null
where v.version = $1 and theirs.seq > coalesce(mine.seq, 0)

-- name: stand_by
update evervec_versions set state = 'standby'
where state = 'serving' and kind in (select kind from evervec_versions where version in (select unnest($1::bigint[])))

-- name: serve
update evervec_versions set state = 'serving' where version in (select unnest($1::bigint[]))

-- name: retire
update evervec_versions set state = 'retired' where version in (select unnest($1::bigint[])) and state <> 'serving'

-- name: drop_version_jobs
delete from evervec_jobs
where job_id in (select job_id from evervec_jobs where version = $1 limit $2)

-- name: drop_version_ledger
delete from evervec_ledger
where version = $1
    and record in (select record from evervec_ledger where version = $1 limit $2)

-- name: forget_version
delete from evervec_versions where version = $1 and state = 'retired'

-- ---- the service: keys, and requests that may come again ----

-- name: key_columns
id, hash, tenant, agent, role, created_at, expires_at, last_used_at, revoked_at, parent, kinds

-- name: add_key
insert into evervec_keys
    (id, hash, tenant, agent, role, created_at, expires_at, last_used_at, revoked_at, parent,
     kinds)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: keys
from evervec_keys where parent is null and ($1::varchar is null or tenant = $1) order by created_at, id

-- name: any_keys
select exists (select 1 from evervec_keys)

-- name: find_keys
from evervec_keys where id in (select unnest($1::varchar[]))

-- name: revoke_key
update evervec_keys set revoked_at = $1 where id = $2 and revoked_at is null

-- name: use_key
update evervec_keys set last_used_at = greatest($1, last_used_at) where id = $2

-- name: expire_key
update evervec_keys
set expires_at = least(expires_at, $1)
where id = $2 and parent is null and revoked_at is null
    and (expires_at is null or expires_at > $3)

-- name: count_tokens
select count(*) from evervec_keys where parent = $1 and created_at > $2

-- name: forget_tokens
delete from evervec_keys where parent is not null and expires_at < $1

-- name: add_audit
insert into evervec_audit
    (noted_at, key_id, agent, tenant, action, target, outcome, request_id, client)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: audit
select noted_at, key_id, agent, tenant, action, target, outcome, request_id, client, entry
from evervec_audit
where ($1::varchar is null or tenant = $1) and ($2::varchar is null or action = $2)
    and ($3::varchar is null or key_id = $3) and ($4::bigint is null or entry < $4)
    and ($5::double is null or noted_at >= $5)
order by entry desc limit $6

-- name: forget_audit
delete from evervec_audit where noted_at < $1

-- name: add_asked
insert into evervec_asked (tenant, name, fingerprint, asked_at)
select $1, $2, $3, $4
where not exists (select 1 from evervec_asked where tenant = $1 and name = $2)

-- name: asked
select fingerprint, answer from evervec_asked where tenant = $1 and name = $2

-- name: count_asked
select count(*) from (select 1 from evervec_asked where tenant = $1 limit $2) as kept

-- name: answer
update evervec_asked set answer = $1 where tenant = $2 and name = $3

-- name: forget_asked
delete from evervec_asked where asked_at < $1

-- name: holdings
select v.kind, v.name, count(l.record), max(j.completed_at) filter (where j.status = 'done')
from evervec_versions as v
join evervec_records as r on r.tenant = $1 and r.kind = v.kind
left join evervec_ledger as l on l.record = r.record and l.version = v.version
left join evervec_jobs as j on j.record = r.record and j.version = v.version
group by v.version, v.kind, v.name
