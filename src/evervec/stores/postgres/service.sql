-- The service: keys, tokens, repeated requests, audit log, tenants' limits.

-- name: tenant_page
-- with the changes that are not added to the totals yet
select n.tenant,
       (select count(distinct u.kind) from (
            select kind from evervec.usage where tenant = n.tenant
            union all
            select kind from evervec.usage_changes where tenant = n.tenant) as u) as kinds,
       t.records, t.bytes, t.chunks,
       (select coalesce(sum(s.tokens), 0) from evervec.spend as s
        where s.tenant = n.tenant and s.day = $3) as tokens,
       (select coalesce(sum(s.money), 0) from evervec.spend as s
        where s.tenant = n.tenant and s.day = $3) as money,
       (select h.until from evervec.holds as h where h.tenant = n.tenant and h.until > $4) as held,
       exists (select 1 from evervec.pauses as p where p.tenant = n.tenant) as paused,
       l.weight, l.kinds, l.records, l.bytes, l.chunks, l.tokens, l.money
from (
    select tenant from (
        select * from (select distinct tenant from evervec.usage
                       where tenant >= $1 order by tenant limit $2) as used
        union
        select * from (select distinct tenant from evervec.usage_changes
                       where tenant >= $1 order by tenant limit $2) as new
        union
        select * from (select tenant from evervec.tenants
                       where tenant >= $1 order by tenant limit $2) as limited
        union
        select * from (select tenant from evervec.pauses
                       where tenant >= $1 order by tenant limit $2) as paused) as found
    order by tenant limit $2) as n
left join evervec.tenants as l on l.tenant = n.tenant
cross join lateral (
    select coalesce(sum(u.records), 0) as records, coalesce(sum(u.bytes), 0) as bytes,
           coalesce(sum(u.chunks), 0) as chunks
    from (
        select records, bytes, 0 as chunks from evervec.usage where tenant = n.tenant
        union all
        select records, bytes, 0 from evervec.usage_changes where tenant = n.tenant
        union all
        select 0, 0, c.chunks
        from (select version, chunks from evervec.chunks where tenant = n.tenant
              union all
              select version, chunks from evervec.usage_changes where tenant = n.tenant) as c
        join evervec.versions as v on v.version = c.version and v.state = 'serving') as u) as t
order by n.tenant

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

-- name: records_in_all
-- the totals, and the changes that are not added to them yet
select coalesce(sum(u.records), 0)
from (select records from evervec.usage union all select records from evervec.usage_changes) as u
