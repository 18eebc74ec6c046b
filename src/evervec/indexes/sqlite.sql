-- The queries of the SQLite index. Lists are one JSON parameter.

-- name: take_numbers
update evervec_meta set value = value + ? where key = 'counter' returning value

-- name: present
select record, hash, point, seq, tenant from evervec_points
where record in (select value from json_each(?)) and version = ?

-- name: insert_point
insert into evervec_points (point, version, tenant, record, seq, position, hash, vector)
values (?, ?, ?, ?, ?, ?, ?, ?)

-- name: keep_point
update evervec_points set seq = ?, position = ? where point = ?

-- name: delete_point
delete from evervec_points where point = ?

-- name: add_removal
insert into evervec_removed (removal, version, tenant, point, removed_at) values (?, ?, ?, ?, ?)

-- name: mark
select value, (select value from evervec_meta where key = 'removals_purged')
from evervec_meta where key = 'counter'

-- name: feed
select point, record, hash, vector from evervec_points
where version = ? and tenant = ? and point > ? and vector is not null
order by point

-- name: removals
select point from evervec_removed where version = ? and tenant = ? and removal > ?

-- name: filtered
select r.record from evervec_records as r
where r.tenant = ? and r.state = 'live'
    and r.kind = (select v.kind from evervec_versions as v where v.version = ?)

-- name: held
-- a vector whose size differs from its version's is not read
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

-- name: drop_strays
delete from evervec_points
where point in (
    select point from evervec_points where version = ?1 and tenant = ?2 limit ?3)
returning point

-- name: drop_points
delete from evervec_points
where point in (select point from evervec_points where version = ?1 limit ?2)

-- name: drop_removals
delete from evervec_removed
where removal in (select removal from evervec_removed where version = ?1 limit ?2)
