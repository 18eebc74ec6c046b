-- The service: keys, tokens, repeated requests, audit log, tenants' limits.

-- name: kinds
-- the kinds of a tenant's records; each takes one seek in the unique key
with recursive k (kind) as (
    select (select kind from evervec_records where tenant = ?1 order by kind limit 1)
    union all
    select (select r.kind from evervec_records as r
            where r.tenant = ?1 and r.kind > k.kind order by r.kind limit 1)
    from k where k.kind is not null)
select kind from k where kind is not null

-- name: usage
select (select coalesce(sum(records), 0) from evervec_usage where tenant = ?1),
       (select coalesce(sum(bytes), 0) from evervec_usage where tenant = ?1),
       (select coalesce(sum(c.chunks), 0) from evervec_chunks as c
        join evervec_versions as v on v.version = c.version and v.state = 'serving'
        where c.tenant = ?1)

-- name: record_sizes
select r.record,
       length(cast(r.text as blob)) + coalesce(length(cast(r.title as blob)), 0) + coalesce(length(cast(r.data as blob)), 0)
       + case when r.metadata = '{}' then 0 else length(cast(r.metadata as blob)) end
from evervec_records as r
where r.record in (select value from json_each(?1)) and r.state <> 'deleted'

-- name: digests
select r.id, r.state, r.hash, r.metadata, r.weight,
       exists (select 1 from evervec_jobs as j
               where j.record = r.record and j.status in ('pending', 'processing'))
from json_each(?3) as wanted
cross join evervec_records as r on r.tenant = ?1 and r.kind = ?2 and r.id = wanted.value

-- name: find_keys
from evervec_keys where id in (select value from json_each(?))

-- name: use_key
update evervec_keys set last_used_at = max(?1, coalesce(last_used_at, ?1)) where id = ?2

-- name: expire_key
update evervec_keys
set expires_at = min(coalesce(expires_at, ?1), ?1)
where id = ?2 and parent is null and revoked_at is null
    and (expires_at is null or expires_at > ?3)

-- name: add_asked
insert into evervec_asked (tenant, name, fingerprint, asked_at) values (?, ?, ?, ?)
on conflict do nothing
