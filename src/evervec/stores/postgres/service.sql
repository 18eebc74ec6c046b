-- The service: keys, tokens, repeated requests, audit log, tenants' limits.

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
