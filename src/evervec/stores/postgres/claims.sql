-- Claims: due jobs in tenants' turns, leases, and loading of claimed jobs.

-- name: claim
-- One statement that commits by itself. The first row also has the values of `Due` in `leases.py`.
-- If a worker crashed with one of the due jobs, nothing is claimed until the caller chooses jobs.
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

-- name: load
-- reads each table once by a list of keys, behind `offset 0`: without statistics the planner would
-- scan whole tables for a join
select op, seq, state, title, text, metadata, weight, updated_at, chunks, box, trace, box_seq
from (
    select j.op, j.seq, r.state, r.title, r.text, r.metadata, r.weight, r.updated_at, l.chunks,
           j.box, j.trace, j.box_seq, w.place,
           sum(coalesce(length(r.text), 0) + coalesce(length(j.box), 0))
               over (order by w.place) as upto
    from unnest($1::bigint[], $2::bigint[]) as w (job_id, place)
    left join (
        select * from evervec.jobs where job_id = any ($1::bigint[]) offset 0) as j
        on j.job_id = w.job_id
    left join (
        select * from evervec.records
        where record = any (array(
            select record from evervec.jobs where job_id = any ($1::bigint[]))) offset 0) as r
        on r.record = j.record
    left join (
        select * from evervec.ledger
        where doubt is null and record = any (array(
            select record from evervec.jobs where job_id = any ($1::bigint[]))) offset 0) as l
        on l.record = j.record and l.version = j.version) as f
where place = 1 or upto <= $3::bigint
order by place

-- name: suspects
select job_id, crashes, attempts, max_attempts from evervec.jobs
where job_id = any ($1::bigint[])

-- name: write_leases
select evervec.write_leases($1, $2)

-- name: write_expired
-- skips jobs that another transaction has locked, so that the others do not wait for it
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

-- name: finish_claimed
-- finishes jobs whose lease is only in the row of their claim and that did not change since.
-- Returns the finished jobs, or null if all were finished, or no row if the claim has no such jobs.
with now as materialized (select evervec.now_seconds() as now),
claim as materialized (  -- reads the whole lists once, instead of once for each job
    select started_at, job_ids || '{}'::bigint[] as job_ids, seqs || '{}'::bigint[] as seqs
    from evervec.claims where token = $1 and job_ids <> '{}'
    for update),
done as (
    update evervec.jobs as j
    set status = 'done', token = $1, worker = $2, box = null, claimed_seq = j.seq,
        finished_seq = j.seq, attempts = j.attempts + 1, started_at = claim.started_at,
        completed_at = now.now, error = null, crashes = 0,
        embedded = coalesce(($4::integer[])[width_bucket(j.job_id, $3::bigint[])], 0),
        reused = coalesce(($5::integer[])[width_bucket(j.job_id, $3::bigint[])], 0),
        tokens = coalesce(($6::integer[])[width_bucket(j.job_id, $3::bigint[])], 0)
    from now, claim
    where j.job_id = any ($3::bigint[]) and j.status = 'pending'
        and claim.job_ids[width_bucket(j.job_id, claim.job_ids)] = j.job_id
        and claim.seqs[width_bucket(j.job_id, claim.job_ids)] = j.seq
    returning j.job_id, j.tenant, j.version, j.started_at, j.completed_at),
counted as (
    insert into evervec.job_changes (tenant, version, open, done, ended, seconds, last_done)
    select tenant, version, -count(*), count(*), count(*), sum(completed_at - started_at),
           max(completed_at)
    from done group by tenant, version),
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

-- name: renew
-- by the server's clock; the lease may also be in the row of its claim
with sooner as (  -- a renewal may shorten a lease
    update evervec.claims set expires_at = evervec.now_seconds() + $1::double precision
    where token = any ($3::text[]) and expires_at > evervec.now_seconds() + $1::double precision)
update evervec.jobs as j
set lease_expires_at = evervec.now_seconds() + $1::double precision
from rows($2 job_id bigint, token text) as n
where j.job_id = n.job_id and coalesce(j.token = n.token and j.status = 'processing', false)
returning j.job_id

-- name: settle_claims
-- for claims whose `expires_at` has passed: set it to the earliest expiry of their leases, or
-- delete the claim if none is left
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
-- the due time of any job that can be claimed now, or of the first that is due later
select least(
    (select q.scheduled_for from evervec.ready as q
     where not q.later and ($1::bigint[] is null or q.version = any ($1::bigint[]))
     limit 1),
    (select q.scheduled_for from evervec.ready as q
     where q.later and ($1::bigint[] is null or q.version = any ($1::bigint[]))
     order by q.scheduled_for limit 1))

-- name: next_expiry
-- claims have the earliest expiry of their leases
select min(expires_at) from evervec.claims where expires_at >= $1
