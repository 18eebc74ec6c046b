-- The service: keys, tokens, repeated requests, audit log, tenants' limits.

-- name: kinds
-- the kinds of a tenant's records
select distinct kind from evervec_records where tenant = $1 order by kind

-- name: usage
select (select coalesce(sum(records), 0) from evervec_usage where tenant = $1),
       (select coalesce(sum(bytes), 0) from evervec_usage where tenant = $1),
       (select coalesce(sum(c.chunks), 0) from evervec_chunks as c
        join evervec_versions as v on v.version = c.version and v.state = 'serving'
        where c.tenant = $1)

-- name: record_sizes
select r.record,
       strlen(r.text) + coalesce(strlen(r.title), 0) + coalesce(strlen(r.data), 0)
       + case when r.metadata = '{}' then 0 else strlen(r.metadata) end
from evervec_records as r
where r.record in (select unnest($1::bigint[])) and r.state <> 'deleted'

-- name: digests
select r.id, r.state, r.hash, r.metadata, r.weight,
       exists (select 1 from evervec_jobs as j
               where j.record = r.record and j.status in ('pending', 'processing'))
from evervec_records as r
where r.tenant = $1 and r.kind = $2 and r.id in (select unnest($3::varchar[]))

-- name: find_keys
from evervec_keys where id in (select unnest($1::varchar[]))

-- name: use_key
update evervec_keys set last_used_at = greatest($1, last_used_at) where id = $2

-- name: expire_key
update evervec_keys
set expires_at = least(expires_at, $1)
where id = $2 and parent is null and revoked_at is null
    and (expires_at is null or expires_at > $3)

-- name: add_asked
insert into evervec_asked (tenant, name, fingerprint, asked_at)
select $1, $2, $3, $4
where not exists (select 1 from evervec_asked where tenant = $1 and name = $2)
