-- Embedding versions.
-- For all stores; `named.py` says in which form.

-- name: rescore_of
select base, gain, days from evervec_kinds where kind = $1

-- name: set_rescore
insert into evervec_kinds (kind, base, gain, days) values ($1, $2, $3, $4)
on conflict (kind) do update
    set base = excluded.base, gain = excluded.gain, days = excluded.days

-- name: adopt
update evervec_versions set name = $1, provider = $2, model = $3, dimensions = $4
where name = ''

-- name: versions
select v.name, v.kind, v.provider, v.model, v.dimensions, v.state,
       coalesce(l.count, 0), v.last_sync_at, v.chunker, v.created_at
from evervec_versions as v
left join (select version, count(*) as count from evervec_ledger group by version) as l
    on l.version = v.version
order by v.kind, v.version

-- name: lock_holder
select holder, token from evervec_locks where name = $1

-- name: drop_lock
delete from evervec_locks where name = $1 and token = $2

-- name: begin_version
-- a kind whose jobs need the program that registered it needs it for every version
insert into evervec_versions
    (version, kind, state, app, name, provider, model, dimensions, created_at)
values ($1, $2, 'building',
        (select coalesce(max(v.app), 0) from evervec_versions as v where v.kind = $2),
        $3, $4, $5, $6, $7)

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
where state = 'serving' and kind in (select kind from evervec_versions where version in list($1))

-- name: serve
update evervec_versions set state = 'serving' where version in list($1) and state <> 'retired'
returning version

-- name: retire
update evervec_versions set state = 'retired' where version in list($1) and state <> 'serving'

-- name: drop_version_jobs
delete from evervec_jobs
where job_id in (select job_id from evervec_jobs where version = $1 limit $2)

-- name: drop_version_ledger
delete from evervec_ledger where version = $1 and record in list($2)

-- name: version_records
select record from evervec_ledger where version = $1 limit $2

-- name: forget_version
delete from evervec_versions where version = $1 and state = 'retired'

-- name: keys
from evervec_keys where parent is null and ($1::text is null or tenant = $1) order by created_at, id

-- name: keys_before
-- a page, the newest first
from evervec_keys
where parent is null and ($1::text is null or tenant = $1) and (created_at, id) < ($2, $3)
order by created_at desc, id desc limit $4

-- name: audit
select noted_at, key_id, agent, tenant, action, target, outcome, request_id, client, entry
from evervec_audit
where ($1::text is null or tenant = $1) and ($2::text is null or action = $2)
    and ($3::text is null or key_id = $3) and ($5::double precision is null or noted_at >= $5)
    -- so that an engine reads only these entries, and stops at the last one
    and entry < coalesce($4::bigint, 9223372036854775807) and entry >= coalesce($6::bigint, 0)
order by entry desc limit $7

-- name: describe_version
update evervec_versions
set cut_since = case when chunker in ('', $1) then cut_since else $2 end, chunker = $1, app = $3
where version = $4

-- name: held_version
-- whether a worker holds a job of a version
select exists (
    select 1 from evervec_current_jobs
    where version = $1 and status = 'processing' and lease_expires_at > $2)

-- name: take_lock
insert into evervec_locks as l (name, holder, token, expires_at) values ($1, $2, $3, $4)
on conflict (name) do update
    set holder = excluded.holder, token = excluded.token, expires_at = excluded.expires_at
    where l.expires_at < $5 or l.holder = excluded.holder
returning token
