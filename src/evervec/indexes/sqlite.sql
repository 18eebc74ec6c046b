-- The queries of the SQLite index. Lists come in as one JSON parameter.

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
select record, tenant, hash from evervec_points
where record > ?1 and (?2 is null or record <= ?2) and +version = ?3
    and (?4 is null or tenant = ?4) and vector is not null
order by record

-- name: drop_points
delete from evervec_points
where point in (select point from evervec_points where version = ?1 limit ?2)

-- name: drop_removals
delete from evervec_removed
where removal in (select removal from evervec_removed where version = ?1 limit ?2)
