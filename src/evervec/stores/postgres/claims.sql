-- Claims: due jobs in tenants' turns, leases, and loading of claimed jobs.

-- name: claim
-- One statement that commits by itself. Its first row is no job: see `claim_jobs` in `claim_functions.sql`.
select * from evervec.claim_jobs($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)

-- name: to_appear
-- unfinished jobs are found without reading those that are done
select j.record, j.tenant, j.op, j.priority, j.scheduled_for, j.seq, j.max_attempts, j.box
from evervec.versions as v
join evervec.versions as s on s.kind = v.kind and s.state = 'serving'
join evervec.jobs as j on j.version = s.version
left join evervec.jobs as n on n.record = j.record and n.version = v.version
where v.version = $1 and j.op = 'load' and j.status <> 'done' and n.job_id is null
    and j.job_id in (
        select job_id from evervec.unfinished where coalesce(op, 'load') = 'load')
order by j.record
limit $2

-- name: claim_chosen
-- One statement that commits by itself, as `claim`. A job that a claim holds has no row in `ready`.
with wanted as materialized (
    select j.job_id, j.tenant, -j.priority::bigint as rank, j.scheduled_for
    from evervec.jobs as j
    where j.job_id = any ($1::bigint[]) and j.tenant = $2 and j.status = 'pending'
        and j.scheduled_for <= (select evervec.now_seconds()) and j.crashes = 0
        and j.op in ('embed', 'open', 'load')),
places as materialized (
    select q.ctid as place
    from wanted as w
    join evervec.ready as q on q.later in (false, true)
        and (q.tenant, q.rank, q.scheduled_for, q.job_id)
        = (w.tenant, w.rank, w.scheduled_for, w.job_id)
    for update of q skip locked)
select * from evervec.claim_jobs($3, $4, $5, 0, given_places => array(select place from places))

-- name: load
-- reads each table once by a list of keys, behind `offset 0`: without statistics the planner would
-- scan whole tables for a join
select op, seq, state, title, text, metadata, weight, updated_at, chunks, box, trace, box_seq,
       record_seq
from (
    select j.op, j.seq, r.state, r.title, r.text, r.metadata, r.weight, r.updated_at, l.chunks,
           j.box, j.trace, j.box_seq, r.seq as record_seq, w.place,
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
done as (  -- subselects are read once; a join would copy the lists' row for each job
    update evervec.jobs as j
    set status = 'done', token = $1, worker = $2, box = null, claimed_seq = j.seq,
        finished_seq = j.seq, attempts = j.attempts + 1,
        started_at = (select started_at from claim), completed_at = (select now from now),
        error = null, crashes = 0,
        embedded = coalesce(($4::integer[])[width_bucket(j.job_id, $3::bigint[])], 0),
        reused = coalesce(($5::integer[])[width_bucket(j.job_id, $3::bigint[])], 0),
        tokens = coalesce(($6::integer[])[width_bucket(j.job_id, $3::bigint[])], 0),
        embedded_at = $7::double precision
    where j.job_id = any ($3::bigint[]) and j.status = 'pending'
        and (select job_ids from claim)[width_bucket(j.job_id, (select job_ids from claim))] = j.job_id
        and (select seqs from claim)[width_bucket(j.job_id, (select job_ids from claim))] = j.seq
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
