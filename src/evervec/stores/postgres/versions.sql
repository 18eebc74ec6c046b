-- Embedding versions.

-- name: versions
-- by the counts that triggers keep
select v.name, v.kind, v.provider, v.model, v.dimensions, v.state, coalesce(l.items, 0)::bigint,
       v.last_sync_at, v.chunker, v.created_at
from evervec.versions as v
left join (
    select e.version, sum(e.entries) as items
    from (select version, entries from evervec.chunks
          union all
          select version, entries from evervec.usage_changes where version is not null) as e
    group by e.version) as l on l.version = v.version
order by v.kind, v.version

-- name: progress
-- by the counts that triggers keep: less hidden records, and less entries that are not of a live
-- record's latest state. Both have unfinished jobs.
select coalesce(sum(c.records), 0)::bigint, coalesce(sum(c.current), 0)::bigint
from evervec.versions as v
cross join lateral (
    select records, 0 as current from evervec.usage where kind = v.kind
    union all
    select records, 0 from evervec.usage_changes where kind = v.kind
    union all
    select 0, entries from evervec.chunks where version = v.version
    union all
    select 0, entries from evervec.usage_changes where version = v.version
    union all
    select -count(distinct r.record), 0
    from evervec.jobs as j
    join evervec.records as r on r.record = j.record and r.kind = v.kind and r.state = 'hidden'
    where j.job_id in (
        select job_id from evervec.unfinished where coalesce(op, 'load') in ('load', 'open'))
    union all
    select 0, -count(*)
    from evervec.jobs as j
    join evervec.ledger as l on l.record = j.record and l.version = v.version
    join evervec.records as r on r.record = j.record
    where j.version = v.version and not (r.state = 'live' and l.seq >= r.seq and l.doubt is null)
        and j.job_id in (select job_id from evervec.unfinished where coalesce(version, $1) = $1)
) as c
where v.version = $1

-- name: version_jobs
-- by the counts that triggers keep
select coalesce(sum(c.open), 0), coalesce(sum(c.failed), 0)
from (select open, failed from evervec.job_counts where tenant = '' and version = $1
      union all
      select open, failed from evervec.job_changes where version = $1) as c

-- name: behind
-- unfinished jobs are found without reading those that are done
select count(*)
from evervec.versions as v
join evervec.versions as s on s.kind = v.kind and s.state = 'serving'
join evervec.jobs as j on j.version = v.version and j.status <> 'done'
join evervec.ledger as theirs on theirs.record = j.record and theirs.version = s.version
left join evervec.ledger as mine
    on mine.record = j.record and mine.version = v.version and mine.doubt is null
where v.version = $1 and theirs.seq > coalesce(mine.seq, 0) and j.job_id in (
    select job_id from evervec.unfinished where coalesce(version, $1) = $1)

-- name: held_version
-- held jobs are found by their claims
select exists (
    select 1 from evervec.held_jobs where version = $1 and lease_expires_at > $2)

-- name: version_records
-- in order, each call from where the last one ended
select record from evervec.ledger where version = $1 and record > $3 order by record limit $2

-- name: open_transactions
-- open transactions of this database, of any user
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
