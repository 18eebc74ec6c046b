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

-- name: feed_part
select point, record, hash, vector from evervec_points
where version = ?1 and tenant = ?2 and point > ?3 and vector is not null
order by point limit ?4

-- name: read_points
select point, hash, vector from evervec_points
where point in (select value from json_each(?)) and vector is not null
order by point

-- name: points_between
select point from evervec_points
where version = ?1 and tenant = ?2 and point > ?3 and point <= ?4
order by point

-- name: large_collections
-- the collections with more numbers in their vectors than given
select c.version, c.tenant
from evervec_chunks as c
join evervec_versions as v on v.version = c.version
where c.chunks * v.dimensions > ?1

-- name: sketch_parts
select first, last, mark, data from evervec_sketches
where version = ?1 and tenant = ?2 order by last

-- name: last_sketched
select last from evervec_sketches where version = ?1 and tenant = ?2 order by last desc limit 1

-- name: sketched_mean
select data from evervec_sketches where version = ?1 and tenant = ?2 order by last limit 1

-- name: old_sketches
-- the parts from before a mark, without their data
select version, tenant, first, last from evervec_sketches where mark < ?1

-- name: sketch_part
select data from evervec_sketches where version = ?1 and tenant = ?2 and last = ?3

-- name: add_sketches
insert into evervec_sketches (version, tenant, first, last, mark, data)
values (?1, ?2, ?3, ?4, ?5, ?6)

-- name: renew_sketches
update evervec_sketches set mark = ?1, data = ?2
where version = ?3 and tenant = ?4 and last = ?5

-- name: drop_sketches
delete from evervec_sketches where version = ?1

-- name: removals
select point from evervec_removed where version = ? and tenant = ? and removal > ?

-- name: filtered
select r.record from evervec_records as r
where r.tenant = ? and r.state = 'live'
    and r.kind = (select v.kind from evervec_versions as v where v.version = ?)

-- name: filtered_among
select r.record
from json_each(?1) as wanted
cross join evervec_records as r on r.record = wanted.value
where r.tenant = ?2 and r.state = 'live'
    and r.kind = (select v.kind from evervec_versions as v where v.version = ?3)

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
