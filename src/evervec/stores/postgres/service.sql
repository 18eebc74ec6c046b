-- The service: keys, tokens, repeated requests, audit log, tenants' limits.

-- name: kinds
-- the kinds of a tenant's records, each found by one step in the index of the key
with recursive k (kind) as (
    select (select kind from evervec.records where tenant = $1 order by kind limit 1)
    union all
    select (select r.kind from evervec.records as r
            where r.tenant = $1 and r.kind > k.kind order by r.kind limit 1)
    from k where k.kind is not null)
select kind from k where kind is not null

-- name: usage
-- the totals, and the changes that are not added to them yet
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

-- name: record_sizes
select r.record,
       octet_length(r.text) + coalesce(octet_length(r.title), 0) + coalesce(octet_length(r.data), 0)
       + case when r.metadata = '{}' then 0 else octet_length(r.metadata) end
from evervec.records as r
where r.record = any ($1::bigint[]) and r.state <> 'deleted'

-- name: digests
select r.id, r.state, r.hash, r.metadata, r.weight,
       exists (select 1 from evervec.jobs as j
               where j.record = r.record and j.status in ('pending', 'processing'))
from evervec.records as r
where r.tenant = $1 and r.kind = $2 and r.id = any ($3)

-- name: find_keys
from evervec.keys where id = any ($1)

-- name: use_key
update evervec.keys set last_used_at = greatest($1, last_used_at) where id = $2

-- name: expire_key
update evervec.keys
set expires_at = least(expires_at, $1)
where id = $2 and parent is null and revoked_at is null
    and (expires_at is null or expires_at > $3)

-- name: add_asked
insert into evervec.asked (tenant, name, fingerprint, asked_at) values ($1, $2, $3, $4)
on conflict do nothing
