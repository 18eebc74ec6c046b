-- Every query of the SQLite store by name. Lists come in as one JSON parameter.

-- name: try_write
-- changes nothing, and is undone
update evervec_meta set value = value where key = 'counter'

-- name: take_numbers
update evervec_meta set value = value + ? where key = 'counter' returning value

-- name: targets
select version from evervec_versions
where kind = ? and state <> 'retired'
order by state <> 'serving', version

-- name: add_version
insert into evervec_versions (version, kind, state, created_at) values (?, ?, 'serving', ?)

-- name: collections
select version, kind, state, chunker, app, cut_since, name, provider, model, dimensions
from evervec_versions
order by version

-- name: loaded_kinds
-- whose rows a loader or an attached table gives
select value from json_each(?) as wanted
where exists (select 1 from evervec_versions as v where v.kind = wanted.value and v.app = 1)
    or exists (select 1 from evervec_attached as a where a.kind = wanted.value)

-- name: need_app
update evervec_versions set app = 1 where kind = ? and app = 0

-- name: adopt
update evervec_versions set name = ?, provider = ?, model = ?, dimensions = ?
where name = ''

-- name: describe_version
update evervec_versions
set cut_since = iif(chunker in ('', ?1), cut_since, ?2), chunker = ?1, app = ?3
where version = ?4

-- name: versions
select v.name, v.kind, v.provider, v.model, v.dimensions, v.state,
       coalesce(l.count, 0), v.last_sync_at, v.chunker, v.created_at
from evervec_versions as v
left join (select version, count(*) as count from evervec_ledger group by version) as l
    on l.version = v.version
order by v.kind, v.version

-- name: touch_versions
update evervec_versions set last_sync_at = ?
where version in (select value from json_each(?))

-- name: known_records
select r.id, r.record, r.state, r.seq, r.hash, r.weight, r.created_at, r.updated_at, r.version,
       r.metadata, r.data, r.born, j.job_id, j.status, j.op, j.box is not null, l.seq
from json_each(:ids) as wanted
cross join evervec_records as r
    on r.tenant = :tenant and r.kind = :kind and r.id = wanted.value
left join evervec_jobs as j on j.record = r.record and j.version = :version
left join evervec_ledger as l
    on l.record = r.record and l.version = :version and l.doubt is null

-- name: insert_stubs
insert into evervec_records
    (record, tenant, kind, id, state, seq, born, weight, created_at, updated_at, metadata, text)
select ?1 + ?2 * key, ?3, ?4, value, 'hidden', ?1 + ?2 * key, ?1 + ?2 * key, 1.0, ?5, ?5, '{}', ''
from json_each(?6)

-- name: insert_loads
insert into evervec_jobs
    (job_id, record, version, tenant, op, status, priority, scheduled_for, seq, max_attempts,
     created_at, later)
select ?1 + ?2 * key + ?3, ?1 + ?2 * key, ?4, ?5, 'load', 'pending', ?6, ?7, ?1 + ?2 * key, ?8, ?9,
       ?7 > ?9
from json_each(?10)

-- name: insert_record
insert into evervec_records
    (record, tenant, kind, id, state, seq, born, hash, weight, created_at, updated_at, version,
     title, metadata, data, text)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: update_record
update evervec_records
set state = ?, seq = ?, born = ?, hash = ?, weight = ?, created_at = ?, updated_at = ?, version = ?,
    title = ?, metadata = ?, data = ?, text = ?
where record = ?

-- name: update_quietly
update evervec_records set created_at = ?, updated_at = ?, version = ?, data = ? where record = ?

-- name: delete_record
update evervec_records
set state = 'deleted', seq = ?, hash = null, updated_at = ?, title = null, metadata = '{}',
    data = null, text = ''
where record = ?

-- name: index_text
insert into evervec_text (rowid, scope, title, text) values (?, ?, ?, ?)

-- name: unindex_text
insert into evervec_text (evervec_text, rowid, scope, title, text)
select 'delete', r.record, ?, coalesce(r.title, ''), r.text
from evervec_records as r
where r.record in (select value from json_each(?)) and r.state = 'live'

-- name: put_job
insert into evervec_jobs
    (job_id, record, version, tenant, op, status, priority, scheduled_for, seq, max_attempts,
     created_at, box, trace, later, box_seq)
values (?1, ?2, ?3, ?4, ?5, 'pending', ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?7 > ?10, ?13)
on conflict (record, version) do update set
    op = excluded.op,
    seq = excluded.seq,
    box = excluded.box,
    box_seq = excluded.box_seq,
    trace = excluded.trace,
    max_attempts = excluded.max_attempts,
    priority = case
        when status in ('pending', 'processing') then max(priority, excluded.priority)
        else excluded.priority end,
    -- a waiting job keeps its place; one in process may wait for its next pass
    scheduled_for = case
        when status = 'pending' or status = 'processing' and seq > claimed_seq
            then min(scheduled_for, excluded.scheduled_for)
        else excluded.scheduled_for end,
    later = case
        when status = 'pending' or status = 'processing' and seq > claimed_seq
            then later and excluded.later
        else excluded.later end,
    attempts = iif(status = 'processing', attempts, 0),
    crashes = iif(status = 'processing', crashes, 0),
    error = iif(status = 'processing', error, null),
    completed_at = iif(status = 'processing', completed_at, null),
    status = iif(status = 'processing', 'processing', 'pending')

-- name: owed
-- what jobs have yet to read; see `debt` in transitions.py
select record, op, box, coalesce(box_seq, seq) from evervec_jobs
where record in (select value from json_each(?)) and op in ('load', 'open') and status <> 'done'

-- name: job_columns
j.job_id, j.tenant, r.kind, r.id, j.version, j.op, j.seq, j.claimed_seq, j.status, j.priority,
j.attempts, j.max_attempts, j.error, j.token, j.created_at, j.scheduled_for, j.started_at,
j.completed_at, j.lease_expires_at, j.record, j.worker, j.crashes
from evervec_jobs as j
cross join evervec_records as r on r.record = j.record

-- name: claim_columns
-- what a lease does not set anew
j.job_id, j.tenant, r.kind, r.id, j.version, j.op, j.seq, j.priority, j.attempts, j.max_attempts,
j.error, j.created_at, j.scheduled_for, j.completed_at, j.record, j.crashes
from evervec_jobs as j
cross join evervec_records as r on r.record = j.record

-- name: versions_stamp
-- another number after any change of versions, by triggers
select value from evervec_meta where key = 'versions'

-- name: kinds
-- of which a tenant has records, each by one step in their key
with recursive k (kind) as (
    select (select kind from evervec_records where tenant = ?1 order by kind limit 1)
    union all
    select (select r.kind from evervec_records as r
            where r.tenant = ?1 and r.kind > k.kind order by r.kind limit 1)
    from k where k.kind is not null)
select kind from k where kind is not null

-- name: any_promoted
select 1 from evervec_jobs indexed by evervec_jobs_later
where status = 'pending' and later = 1 and scheduled_for <= ?
limit 1

-- name: promote
-- jobs that were for later and are due now
update evervec_jobs set later = 0
where job_id in (
    select job_id from evervec_jobs indexed by evervec_jobs_later
    where status = 'pending' and later = 1 and scheduled_for <= ?
    order by scheduled_for
    limit ?)

-- name: next_tenant
-- the first behind another, in the order of their names, that has jobs to claim
select tenant from evervec_jobs indexed by evervec_jobs_turns
where status = 'pending' and later = 0 and tenant > ?
order by tenant limit 1

-- name: due_of_tenant
-- ?4: versions whose jobs are left for others
where j.status = 'pending' and j.later = 0 and j.tenant = ?1 and j.scheduled_for <= ?2
    and j.crashes <= ?3 and j.op in ('embed', 'open', 'load', 'delete')
    and (?4 is null
         or j.version not in (select value from json_each(?4))
             and exists (select 1 from evervec_versions as v where v.version = j.version))
order by j.priority desc, j.scheduled_for, j.job_id
limit ?5

-- name: lease
update evervec_jobs
set status = 'processing', token = ?, worker = ?, started_at = ?, lease_expires_at = ?,
    claimed_seq = seq, attempts = attempts + 1
where job_id in (select value from json_each(?))

-- name: load
-- of an entry in doubt nothing is known to be in the index
select j.op, j.seq, r.state, r.title, r.text, r.metadata, r.weight, r.updated_at, l.chunks, j.box,
       j.trace, j.box_seq
from json_each(?) as wanted
left join evervec_jobs as j on j.job_id = wanted.value
left join evervec_records as r on r.record = j.record
left join evervec_ledger as l
    on l.record = j.record and l.version = j.version and l.doubt is null

-- name: standing
select job_id, status, op, seq, claimed_seq, finished_seq, token, attempts, max_attempts, crashes,
       box is not null, priority, scheduled_for, error, completed_at, started_at, lease_expires_at
from evervec_jobs
where job_id in (select value from json_each(?))

-- name: finish
update evervec_jobs
set status = iif(seq > ?1, 'pending', 'done'),
    attempts = iif(seq > ?1, 0, attempts),
    box = iif(seq > ?1, box, null),
    finished_seq = ?1, completed_at = ?2, lease_expires_at = null, error = null, crashes = 0
where job_id = ?3

-- name: finish_untouched
update evervec_jobs
set status = 'done', box = null, finished_seq = claimed_seq, completed_at = ?,
    lease_expires_at = null, error = null, crashes = 0
where job_id in (select value from json_each(?))
    and token = ? and status = 'processing' and seq = claimed_seq

-- name: add_done_attempts
insert into evervec_attempts
    (record, tenant, version, attempt, seq, started_at, finished_at, outcome, chunks_embedded,
     chunks_reused, tokens, worker)
select record, tenant, version, attempts, claimed_seq, started_at, completed_at, 'done', ?, ?, ?, ?
from evervec_jobs
where job_id in (select value from json_each(?))

-- name: reveal_state
select state, seq, created_at, version, born from evervec_records where record = ?

-- name: born
select record, iif(state = 'deleted', seq, born) from evervec_records
where record in (select value from json_each(?))

-- name: put_ledger
insert into evervec_ledger (record, version, seq, chunks, fence) values (?, ?, ?, ?, ?)
on conflict (record, version) do update
    set seq = excluded.seq, chunks = excluded.chunks, fence = excluded.fence, doubt = null
where excluded.seq >= seq

-- name: doubt_ledger
-- a write into an index outside of the store begins
update evervec_ledger set doubt = ?
where (record, version) in (
    select record, version from evervec_jobs where job_id in (select value from json_each(?)))

-- name: drop_ledger
delete from evervec_ledger where record = ? and version = ? and seq <= ?

-- name: add_attempts
insert into evervec_attempts
    (record, tenant, version, attempt, seq, started_at, finished_at, outcome, chunks_embedded,
     chunks_reused, tokens, worker, error)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_back
update evervec_jobs
set status = ?, scheduled_for = ?, attempts = ?, crashes = ?, error = ?,
    completed_at = ?, token = null, lease_expires_at = null, later = 1
where job_id = ?

-- name: release
update evervec_jobs
set status = 'pending', attempts = iif(seq > claimed_seq, 0, max(attempts - 1, 0)),
    error = coalesce(?1, error),
    scheduled_for = iif(seq > claimed_seq, scheduled_for, coalesce(?2, scheduled_for)),
    later = later or ?2 is not null, token = null, lease_expires_at = null
where job_id = ?3 and token = ?4 and status = 'processing'

-- name: raise_counter
update evervec_meta set value = max(value, ?) where key = 'counter'

-- name: renew
update evervec_jobs set lease_expires_at = ? where job_id = ?

-- name: expired
where j.status = 'processing' and j.lease_expires_at < ?1 and (?2 is null or j.tenant = ?2)
order by j.lease_expires_at
limit ?3

-- name: stuck
where j.status = 'processing' and (j.lease_expires_at < ?1 or j.started_at < ?4)
    and (?2 is null or j.tenant = ?2)
order by j.lease_expires_at
limit ?3

-- name: next_scheduled
-- of one that can be claimed now, and of the first that is for later
select min(scheduled_for) from (
    select * from (
        select scheduled_for from evervec_jobs indexed by evervec_jobs_turns
        where status = 'pending' and later = 0
            and (?1 is null or version in (select value from json_each(?1)))
        limit 1)
    union all
    select * from (
        select scheduled_for from evervec_jobs indexed by evervec_jobs_later
        where status = 'pending' and later = 1
            and (?1 is null or version in (select value from json_each(?1)))
        order by scheduled_for limit 1))

-- name: next_expiry
select min(lease_expires_at) from evervec_jobs where status = 'processing'

-- name: retry_one
update evervec_jobs
set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
    scheduled_for = ?, later = 0
where job_id = ? and status = 'failed'

-- name: retry_failed
update evervec_jobs
set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
    scheduled_for = ?1, later = 0
where job_id in (
    select job_id from evervec_jobs
    where status = 'failed' and (?2 is null or tenant = ?2) and (?3 is null or attempts < ?3))

-- name: drop_job
delete from evervec_jobs where job_id = ?

-- name: drop_jobs
delete from evervec_jobs where job_id in (select value from json_each(?1))
returning record

-- name: set_priority
update evervec_jobs set priority = ? where job_id = ?

-- name: purge_jobs
delete from evervec_jobs
where job_id in (
    select job_id from evervec_jobs
    where status = ?1 and completed_at < ?2 and (?3 is null or tenant = ?3) and (?4 or box is null)
    order by completed_at
    limit ?5)
returning record

-- name: orphans
-- jobs of versions that do not exist
select job_id from evervec_jobs
where status = 'pending' and version not in (select version from evervec_versions)
union all
select job_id from evervec_jobs
where status = 'failed' and version not in (select version from evervec_versions)
limit ?1

-- name: forsake
-- what never appeared, and no job will make appear, is as good as deleted
update evervec_records set state = 'deleted'
where record in (select value from json_each(?)) and state = 'hidden'
    and not exists (select 1 from evervec_jobs as j where j.record = evervec_records.record)

-- name: purge_attempts
delete from evervec_attempts
where number in (
    select number
    from (select number, finished_at from evervec_attempts order by number limit ?2)
    where finished_at < ?1)

-- name: purge_removed
delete from evervec_removed
where removal in (
    select removal from (select removal, removed_at from evervec_removed order by removal limit ?2)
    where removed_at < ?1)
returning removal

-- name: removals_purged
update evervec_meta set value = max(value, ?) where key = 'removals_purged'

-- name: forgotten
select r.record from evervec_records as r
where r.state = 'deleted' and r.updated_at < ?
    and not exists (select 1 from evervec_jobs as j where j.record = r.record)
order by r.updated_at
limit ?

-- name: forget_records
delete from evervec_records where record in (select value from json_each(?))

-- name: forget_ledger
delete from evervec_ledger where record in (select value from json_each(?))

-- name: forget_points
delete from evervec_points where record in (select value from json_each(?))

-- name: pauses
-- tenants whose jobs are not claimed; the empty name stands for all
select tenant from evervec_pauses order by tenant

-- name: pause
insert into evervec_pauses (tenant) values (?) on conflict do nothing

-- name: resume
delete from evervec_pauses where tenant = ?

-- name: weights
select tenant, weight from evervec_tenants where weight <> 1

-- name: limits
select weight, kinds, records, bytes, chunks, tokens, money from evervec_tenants where tenant = ?1

-- name: limited_tenants
select tenant from evervec_tenants order by tenant

-- name: drop_limits
delete from evervec_tenants where tenant = ?1

-- name: set_limits
insert into evervec_tenants (tenant, weight, kinds, records, bytes, chunks, tokens, money)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)

-- name: spent
-- in a day
select coalesce(sum(tokens), 0), coalesce(sum(money), 0) from evervec_spend
where tenant = ?1 and day = ?2

-- name: hold
select until from evervec_holds where tenant = ?1 and until > ?2

-- name: add_hold
insert into evervec_holds (tenant, until) values (?1, ?2)

-- name: drop_hold
delete from evervec_holds where tenant = ?1

-- name: forget_holds
delete from evervec_holds where until <= ?

-- name: held_back
-- tenants whose jobs are not claimed: paused, or with the day's quota used up
select tenant from evervec_pauses
union
select tenant from evervec_holds where until > ?1

-- name: usage
select (select coalesce(sum(records), 0) from evervec_usage where tenant = ?1),
       (select coalesce(sum(bytes), 0) from evervec_usage where tenant = ?1),
       (select coalesce(sum(c.chunks), 0) from evervec_chunks as c
        join evervec_versions as v on v.version = c.version and v.state = 'serving'
        where c.tenant = ?1)

-- name: count_new
insert into evervec_usage (tenant, kind, records, bytes) values (?, ?, ?, ?)
on conflict do update set records = records + excluded.records, bytes = bytes + excluded.bytes

-- name: record_sizes
select r.record,
       length(cast(r.text as blob)) + coalesce(length(cast(r.title as blob)), 0) + coalesce(length(cast(r.data as blob)), 0)
       + case when r.metadata = '{}' then 0 else length(cast(r.metadata as blob)) end
from evervec_records as r
where r.record in (select value from json_each(?1)) and r.state <> 'deleted'

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
where r.tenant = ? and r.kind = ? and r.id = ? and r.state = 'live'

-- name: jobs_by_id
where j.job_id in (select value from json_each(?))

-- name: job_by_id
where j.job_id = ?1 and (?2 is null or j.tenant = ?2)

-- name: history
select a.attempt, a.seq, a.worker, a.started_at, a.finished_at, a.outcome, a.error,
       a.chunks_embedded, a.chunks_reused, a.tokens
from evervec_records as r
join evervec_attempts as a on a.record = r.record
where r.tenant = ? and r.kind = ? and r.id = ?
order by a.number

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
-- how records stand with the version that serves, and what is to come of any
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

-- name: serving_job
select j.job_id
from evervec_records as r
join evervec_versions as s on s.kind = r.kind and s.state = 'serving'
join evervec_jobs as j on j.record = r.record and j.version = s.version
where r.tenant = ?1 and r.kind = ?2 and r.id = ?3

-- name: mark
select value from evervec_meta where key = 'counter'

-- name: text_totals
-- FTS5's own: rows, then words by column
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
-- all rows in one: each row that is stepped to costs a turn among the threads of the process
with scored as materialized (
    select t.rowid as record, -bm25(evervec_text, 0.0, 2.0, 1.0) as score, s.sz as size
    from evervec_text as t
    cross join evervec_text_docsize as s on s.id = t.rowid
    where evervec_text match ?
)
select json_group_array(json_array(record, score, hex(size))) from scored

-- name: score_text_most
-- with what a record would have in which the term occurs without end
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
where r.tenant = ?2 and r.state = 'live' and (?3 is null or r.kind = ?3)
    and instr(lower(coalesce(r.title, '') || ' ' || r.text), lower(?1)) > 0

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

-- name: digests
select r.id, r.state, r.hash, r.metadata, r.weight,
       exists (select 1 from evervec_jobs as j
               where j.record = r.record and j.status in ('pending', 'processing'))
from json_each(?3) as wanted
cross join evervec_records as r on r.tenant = ?1 and r.kind = ?2 and r.id = wanted.value

-- name: sizes
select coalesce(sum(length(r.text) + coalesce(length(r.title), 0)), 0)
from evervec_records as r
where r.record in (select value from json_each(?))

-- name: typed
select r.record, r.tenant, r.id, r.seq, r.hash, r.data, r.title, r.metadata, r.weight,
       r.created_at, r.updated_at
from evervec_records as r
where r.record > ? and r.kind = ? and r.state = 'live' and r.data is not null
order by r.record
limit ?

-- name: reopen
select r.record, r.tenant, r.kind, r.state
from json_each(?1) as wanted
cross join evervec_records as r on r.record = wanted.value
where exists (select 1 from evervec_versions as v where v.version = ?2 and v.state <> 'retired')

-- name: take_lock
insert into evervec_locks (name, holder, token, expires_at) values (?1, ?2, ?3, ?4)
on conflict (name) do update
    set holder = excluded.holder, token = excluded.token, expires_at = excluded.expires_at
    where expires_at < ?5 or holder = excluded.holder
returning token

-- name: lock_holder
select holder, token from evervec_locks where name = ?

-- name: drop_lock
delete from evervec_locks where name = ? and token = ?

-- name: forget_locks
delete from evervec_locks where expires_at < ?

-- name: note
select value, revision from evervec_notes where name = ?

-- name: add_note
insert into evervec_notes (name, value, revision) values (?, ?, ?) on conflict do nothing

-- name: set_note
update evervec_notes set value = ?, revision = revision + 1 where name = ? and revision = ?

-- name: drop_note
delete from evervec_notes where name = ? and revision = ?

-- name: add_spend
insert into evervec_spend (day, tenant, kind, model, calls, tokens, money)
values (?, ?, ?, ?, ?, ?, ?)
on conflict do update set
    calls = calls + excluded.calls, tokens = tokens + excluded.tokens,
    money = money + excluded.money

-- name: spend
select day, tenant, kind, model, calls, tokens, money from evervec_spend
where day >= ?1 and (?2 is null or tenant = ?2)
order by day desc, tenant, kind, model

-- name: purge_spend
delete from evervec_spend where day < ?

-- name: cached
select hash, vector from evervec_cache
where model = ? and hash in (select value from json_each(?))

-- name: add_cached
insert into evervec_cache (model, hash, vector) values (?, ?, ?) on conflict do nothing

-- name: trim_cache
delete from evervec_cache where number <= (select max(number) from evervec_cache) - ?

-- name: beat
insert into evervec_workers (worker, version, started_at, seen_at, held, done)
values (?1, ?2, ?3, ?3, ?4, ?5)
on conflict (worker) do update
    set version = excluded.version, seen_at = excluded.seen_at, held = excluded.held,
        done = excluded.done

-- name: forget_workers
delete from evervec_workers where seen_at < ?

-- name: leave
delete from evervec_workers where worker = ?

-- name: workers
select worker, version, started_at, seen_at, held, done from evervec_workers order by worker

-- name: begin_version
insert into evervec_versions (version, kind, state, name, provider, model, dimensions, created_at)
values (?, ?, 'building', ?, ?, ?, ?, ?)

-- name: to_appear
-- what the serving version's jobs still have to load, and the other has no job for
select j.record, j.tenant, j.op, j.priority, j.scheduled_for, j.seq, j.max_attempts, j.box
from evervec_versions as v
join evervec_versions as s on s.kind = v.kind and s.state = 'serving'
join evervec_jobs as j on j.version = s.version
left join evervec_jobs as n on n.record = j.record and n.version = v.version
where v.version = ?1 and j.op = 'load' and j.status <> 'done' and n.job_id is null
order by j.record
limit ?2

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
limit ?1

-- name: rivals
-- the versions that a change of each record has to reach, with the record's jobs for them
select r.record, r.seq, v.version, v.state = 'serving', j.op,
       case when j.op = 'open' then coalesce(j.box_seq, j.seq) else j.seq end
from evervec_records as r
join evervec_versions as v on v.kind = r.kind and v.state <> 'retired'
left join evervec_jobs as j on j.record = r.record and j.version = v.version
where r.record in (select value from json_each(?1))
order by r.record, v.version

-- name: progress
select count(*), coalesce(sum(case when l.seq >= r.seq and l.doubt is null then 1 else 0 end), 0)
from evervec_versions as v
join evervec_records as r on r.kind = v.kind and r.state = 'live'
left join evervec_ledger as l on l.record = r.record and l.version = v.version
where v.version = ?1

-- name: version_jobs
select coalesce(sum(case when status in ('pending', 'processing') then 1 else 0 end), 0),
       coalesce(sum(case when status = 'failed' then 1 else 0 end), 0)
from evervec_jobs
where version = ?1

-- name: behind
-- records that the serving version has in a later state than this one
select count(*)
from evervec_versions as v
join evervec_versions as s on s.kind = v.kind and s.state = 'serving'
join evervec_jobs as j on j.version = v.version and j.status <> 'done'
join evervec_ledger as theirs on theirs.record = j.record and theirs.version = s.version
left join evervec_ledger as mine
    on mine.record = j.record and mine.version = v.version and mine.doubt is null
where v.version = ?1 and theirs.seq > coalesce(mine.seq, 0)

-- name: stand_by
update evervec_versions set state = 'standby'
where state = 'serving' and kind in (select kind from evervec_versions where version in (select value from json_each(?1)))

-- name: serve
update evervec_versions set state = 'serving' where version in (select value from json_each(?1))

-- name: retire
update evervec_versions set state = 'retired' where version in (select value from json_each(?1)) and state <> 'serving'

-- name: drop_version_jobs
delete from evervec_jobs
where job_id in (select job_id from evervec_jobs where version = ?1 limit ?2)

-- name: drop_version_ledger
delete from evervec_ledger
where version = ?1
    and record in (select record from evervec_ledger where version = ?1 limit ?2)

-- name: forget_version
delete from evervec_versions where version = ?1 and state = 'retired'

-- ---- the service: keys, and requests that may come again ----

-- name: key_columns
id, hash, tenant, agent, role, created_at, expires_at, last_used_at, revoked_at, parent, kinds

-- name: add_key
insert into evervec_keys
    (id, hash, tenant, agent, role, created_at, expires_at, last_used_at, revoked_at, parent,
     kinds)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: keys
from evervec_keys where parent is null and (?1 is null or tenant = ?1) order by created_at, id

-- name: any_keys
select exists (select 1 from evervec_keys)

-- name: find_keys
from evervec_keys where id in (select value from json_each(?))

-- name: revoke_key
update evervec_keys set revoked_at = ? where id = ? and revoked_at is null

-- name: use_key
update evervec_keys set last_used_at = max(?1, coalesce(last_used_at, ?1)) where id = ?2

-- name: expire_key
update evervec_keys
set expires_at = min(coalesce(expires_at, ?1), ?1)
where id = ?2 and parent is null and revoked_at is null
    and (expires_at is null or expires_at > ?3)

-- name: count_tokens
select count(*) from evervec_keys where parent = ?1 and created_at > ?2

-- name: forget_tokens
delete from evervec_keys where parent is not null and expires_at < ?1

-- name: add_audit
insert into evervec_audit
    (noted_at, key_id, agent, tenant, action, target, outcome, request_id, client)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)

-- name: audit
select noted_at, key_id, agent, tenant, action, target, outcome, request_id, client, entry
from evervec_audit
where (?1 is null or tenant = ?1) and (?2 is null or action = ?2)
    and (?3 is null or key_id = ?3) and (?4 is null or entry < ?4)
    and (?5 is null or noted_at >= ?5)
order by entry desc limit ?6

-- name: forget_audit
delete from evervec_audit where noted_at < ?1

-- name: add_asked
insert into evervec_asked (tenant, name, fingerprint, asked_at) values (?, ?, ?, ?)
on conflict do nothing

-- name: asked
select fingerprint, answer from evervec_asked where tenant = ? and name = ?

-- name: count_asked
select count(*) from (select 1 from evervec_asked where tenant = ? limit ?) as kept

-- name: answer
update evervec_asked set answer = ? where tenant = ? and name = ?

-- name: forget_asked
delete from evervec_asked where asked_at < ?

-- name: holdings
select v.kind, v.name, count(l.record),
       max(case when j.status = 'done' then j.completed_at end)
from evervec_versions as v
cross join evervec_records as r on r.tenant = ?1 and r.kind = v.kind
left join evervec_ledger as l on l.record = r.record and l.version = v.version
left join evervec_jobs as j on j.record = r.record and j.version = v.version
group by v.version
