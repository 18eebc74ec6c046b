-- The points in a store's own file. `stores/named.py` describes the neutral form.

-- name: present
select record, hash, point, seq, tenant from evervec_points
where record in list($1) and version = $2

-- name: insert_points
insert into evervec_points (point, version, tenant, record, seq, position, hash, vector)
select * from rows($1 point bigint, version bigint, tenant text, record bigint, seq bigint,
                   position bigint, hash bytea, vector bytea) as n

-- name: keep_points
update evervec_points as p set seq = n.seq, position = n.position
from rows($1 seq bigint, position bigint, point bigint) as n
where p.point = n.point

-- name: delete_points
delete from evervec_points where point in list($1)

-- name: add_removals
insert into evervec_removed (removal, version, tenant, point, removed_at)
select * from rows($1 removal bigint, version bigint, tenant text, point bigint,
                   removed_at double) as n

-- name: mark
-- the highest number of points and removals, and up to which number removals were purged
select greatest(
           purged.value, (select coalesce(max(point), 0) from evervec_points),
           (select coalesce(max(removal), 0) from evervec_removed)),
       purged.value
from evervec_meta as purged where purged.key = 'removals_purged'

-- name: feed
select point, record, hash, vector from evervec_points
where version = $1 and tenant = $2 and point > $3 and vector is not null
order by point

-- name: count_part
-- at least as many as `feed_part` has, by an index
select count(*) from (
    select 1 from evervec_points where version = $1 and tenant = $2 and point > $3 limit $4) as n

-- name: feed_part
select point, record, hash, vector from evervec_points
where version = $1 and tenant = $2 and point > $3 and vector is not null
order by point limit $4

-- name: read_points
select point, hash, vector from evervec_points
where point in list($1) and vector is not null
order by point

-- name: points_between
select point from evervec_points
where version = $1 and tenant = $2 and point > $3 and point <= $4
order by point

-- name: large_collections
-- the collections with more numbers in their vectors than given
select c.version, c.tenant
from evervec_chunks as c
join evervec_versions as v on v.version = c.version
where c.chunks * v.dimensions > $1

-- name: sketch_parts
select first, last, mark, data from evervec_sketches
where version = $1 and tenant = $2 order by last

-- name: last_sketched
select last from evervec_sketches where version = $1 and tenant = $2 order by last desc limit 1

-- name: sketched_mean
select data from evervec_sketches where version = $1 and tenant = $2 order by last limit 1

-- name: old_sketches
-- the parts from before a mark, without their data
select version, tenant, first, last from evervec_sketches where mark < $1

-- name: sketch_part
select data from evervec_sketches where version = $1 and tenant = $2 and last = $3

-- name: add_sketches
insert into evervec_sketches (version, tenant, first, last, mark, data)
values ($1, $2, $3, $4, $5, $6)

-- name: renew_sketches
update evervec_sketches set mark = $1, data = $2
where version = $3 and tenant = $4 and last = $5

-- name: drop_sketches
delete from evervec_sketches where version = $1

-- name: removals
select point from evervec_removed where version = $1 and tenant = $2 and removal > $3

-- name: filtered
select r.record from evervec_records as r
where r.tenant = $1 and r.state = 'live'
    and r.kind = (select v.kind from evervec_versions as v where v.version = $2)

-- name: filtered_among
select r.record from evervec_records as r
where r.record in list($1) and r.tenant = $2 and r.state = 'live'
    and r.kind = (select v.kind from evervec_versions as v where v.version = $3)

-- name: vectors
-- a vector whose size differs from its version's is not read
select p.record, p.hash, p.position, p.vector
from evervec_points as p
join evervec_versions as v on v.version = p.version
where p.record in list($1) and p.version = $2 and octet_length(p.vector) = 4 * v.dimensions
order by p.record, p.position

-- name: held
-- a vector whose size differs from its version's is not read
select p.record, p.tenant, p.hash, p.seq, p.point,
       case when octet_length(p.vector) = 4 * v.dimensions then p.vector end
from evervec_points as p
join evervec_versions as v on v.version = p.version
where p.record > $1 and ($2::bigint is null or p.record <= $2) and p.version = $3
    and ($4::text is null or p.tenant = $4) and p.vector is not null
order by p.record

-- name: strays
select version, tenant, count(distinct record) from evervec_points
where version not in list($1) and ($2::text is null or tenant = $2) and vector is not null
group by version, tenant

-- name: drop_strays
delete from evervec_points
where point in (select point from evervec_points where version = $1 and tenant = $2 limit $3)
returning point

-- name: drop_points
delete from evervec_points
where point in (select point from evervec_points where version = $1 limit $2)

-- name: drop_removals
delete from evervec_removed
where removal in (select removal from evervec_removed where version = $1 limit $2)
