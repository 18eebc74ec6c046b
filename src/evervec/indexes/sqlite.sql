-- The queries of `points.sql` that differ in SQLite.

-- name: mark
-- the counter is a row
select value, (select value from evervec_meta where key = 'removals_purged')
from evervec_meta where key = 'counter'

-- name: filtered_among
-- joined with the list, so that the records are found by number
select r.record
from json_each(?1) as wanted
cross join evervec_records as r on r.record = wanted.value
where r.tenant = ?2 and r.state = 'live'
    and r.kind = (select v.kind from evervec_versions as v where v.version = ?3)

-- name: vectors
-- joined with the list: `in` would sort it first, and searches may read vectors
select p.record, p.hash, p.position, p.vector
from json_each(?1) as wanted
cross join evervec_points as p on p.record = wanted.value and p.version = ?2
where length(p.vector) = 4 * (select v.dimensions from evervec_versions as v where v.version = ?2)
order by p.record, p.position

-- name: held
-- `cross join` and `+`: the points are walked by record
select p.record, p.tenant, p.hash, p.seq, p.point,
       iif(length(p.vector) = 4 * v.dimensions, p.vector, null)
from evervec_versions as v
cross join evervec_points as p
where v.version = ?3 and p.record > ?1 and (?2 is null or p.record <= ?2)
    and +p.version = v.version and (?4 is null or p.tenant = ?4) and p.vector is not null
order by p.record

-- name: strays
-- skips from version to version by the index, so that only the points of strays are read
with recursive versions (version) as (
    select min(version) from evervec_points
    union all
    select (select min(p.version) from evervec_points as p where p.version > versions.version)
    from versions where versions.version is not null)
select p.version, p.tenant, count(distinct p.record)
from versions
cross join evervec_points as p on p.version = versions.version
where versions.version not in (select value from json_each(?1)) and (?2 is null or p.tenant = ?2)
    and p.vector is not null
group by p.version, p.tenant

-- name: fitting_state
-- the counter, and the number of the last write of word parts, which removes notes of changes
select value, (select value from evervec_meta where key = 'words')
from evervec_meta where key = 'counter'

-- name: changed_since
select record from evervec_rewritten where tenant = ?1 and mark > ?2

-- name: filtered_since
select r.record from evervec_records as r
where r.record > ?3 and +r.tenant = ?1 and r.state = 'live'
    and +r.kind = (select v.kind from evervec_versions as v where v.version = ?2)
