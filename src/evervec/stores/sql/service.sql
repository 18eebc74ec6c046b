-- The service: keys, tokens, repeated requests, audit log, tenants' limits.
-- For all stores; `named.py` says in which form.

-- name: limits
select weight, kinds, records, bytes, chunks, tokens, money from evervec_tenants where tenant = $1

-- name: limited_tenants
select tenant from evervec_tenants order by tenant

-- name: tenant_page
-- tenants with records, limits or a pause, from a name on; their kinds are those that were counted
select n.tenant,
       (select count(*) from evervec_usage as u where u.tenant = n.tenant) as kinds,
       (select coalesce(sum(u.records), 0) from evervec_usage as u
        where u.tenant = n.tenant) as records,
       (select coalesce(sum(u.bytes), 0) from evervec_usage as u where u.tenant = n.tenant) as bytes,
       (select coalesce(sum(c.chunks), 0) from evervec_chunks as c
        join evervec_versions as v on v.version = c.version and v.state = 'serving'
        where c.tenant = n.tenant) as chunks,
       (select coalesce(sum(s.tokens), 0) from evervec_spend as s
        where s.tenant = n.tenant and s.day = $3) as tokens,
       (select coalesce(sum(s.money), 0) from evervec_spend as s
        where s.tenant = n.tenant and s.day = $3) as money,
       (select h.until from evervec_holds as h where h.tenant = n.tenant and h.until > $4) as held,
       exists (select 1 from evervec_pauses as p where p.tenant = n.tenant) as paused,
       l.weight, l.kinds, l.records, l.bytes, l.chunks, l.tokens, l.money
from (
    select tenant from (
        select * from (select distinct tenant from evervec_usage
                       where tenant >= $1 order by tenant limit $2) as used
        union
        select * from (select tenant from evervec_tenants
                       where tenant >= $1 order by tenant limit $2) as limited
        union
        select * from (select tenant from evervec_pauses
                       where tenant >= $1 order by tenant limit $2) as paused) as found
    order by tenant limit $2) as n
left join evervec_tenants as l on l.tenant = n.tenant
order by n.tenant

-- name: drop_limits
delete from evervec_tenants where tenant = $1

-- name: set_limits
insert into evervec_tenants (tenant, weight, kinds, records, bytes, chunks, tokens, money)
values ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: spent
-- tokens and money of one day
select coalesce(sum(tokens), 0) as tokens, coalesce(sum(money), 0) as money from evervec_spend
where tenant = $1 and day = $2

-- name: hold
select until from evervec_holds where tenant = $1 and until > $2

-- name: add_hold
insert into evervec_holds (tenant, until) values ($1, $2)

-- name: drop_hold
delete from evervec_holds where tenant = $1

-- name: key_columns
id, hash, tenant, agent, role, created_at, expires_at, last_used_at, revoked_at, parent, kinds

-- name: add_key
insert into evervec_keys
    (id, hash, tenant, agent, role, created_at, expires_at, last_used_at, revoked_at, parent,
     kinds)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: any_keys
select exists (select 1 from evervec_keys)

-- name: revoke_key
update evervec_keys set revoked_at = $1 where id = $2 and revoked_at is null

-- name: count_tokens
select count(*) from evervec_keys where parent = $1 and created_at > $2

-- name: forget_tokens
delete from evervec_keys where parent is not null and expires_at < $1

-- name: frequent_audit
select tenant, action from evervec_audit group by tenant, action having count(*) > $1

-- name: trim_audit
delete from evervec_audit where entry in (
    select entry from evervec_audit
    where tenant = $1 and action = $2 and entry <= (
        select entry from evervec_audit where tenant = $1 and action = $2
        order by entry desc limit 1 offset $3)
    order by entry limit $4)

-- name: add_audit
insert into evervec_audit
    (noted_at, key_id, agent, tenant, action, target, outcome, request_id, client)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: forget_audit
delete from evervec_audit where noted_at < $1

-- name: asked
select fingerprint, answer from evervec_asked where tenant = $1 and name = $2

-- name: count_asked
select count(*) from (select 1 from evervec_asked where tenant = $1 limit $2) as kept

-- name: answer
update evervec_asked set answer = $1 where tenant = $2 and name = $3

-- name: forget_asked
delete from evervec_asked where asked_at < $1

-- name: find_keys
from evervec_keys where id in texts($1)

-- name: expire_key
update evervec_keys
set expires_at = case when expires_at < $1 then expires_at else $1 end
where id = $2 and parent is null and revoked_at is null
    and (expires_at is null or expires_at > $3)

-- name: use_key
update evervec_keys
set last_used_at = case when last_used_at > $1 then last_used_at else $1 end
where id = $2

-- name: digests
select r.id, r.state, r.hash, r.metadata, r.weight, r.updated_at,
       exists (select 1 from evervec_jobs as j
               where j.record = r.record and j.status in ('pending', 'processing')) as busy
from evervec_records as r
where r.tenant = $1 and r.kind = $2 and r.id in texts($3)

-- name: record_sizes
select r.record,
       octets(r.text) + coalesce(octets(r.title), 0) + coalesce(octets(r.data), 0)
       + case when r.metadata = '{}' then 0 else octets(r.metadata) end
from evervec_records as r
where r.record in list($1) and r.state <> 'deleted'

-- name: usage
select (select coalesce(sum(records), 0) from evervec_usage where tenant = $1),
       (select coalesce(sum(bytes), 0) from evervec_usage where tenant = $1),
       (select coalesce(sum(c.chunks), 0) from evervec_chunks as c
        join evervec_versions as v on v.version = c.version and v.state = 'serving'
        where c.tenant = $1)

-- name: records_in_all
select coalesce(sum(records), 0) from evervec_usage

-- name: add_asked
insert into evervec_asked (tenant, name, fingerprint, asked_at) values ($1, $2, $3, $4)
on conflict do nothing

-- name: kinds
-- the kinds of a tenant's records, each found by one step in the index of the key
with recursive k (kind) as (
    select (select kind from evervec_records where tenant = $1 order by kind limit 1)
    union all
    select (select r.kind from evervec_records as r
            where r.tenant = $1 and r.kind > k.kind order by r.kind limit 1)
    from k where k.kind is not null)
select kind from k where kind is not null
