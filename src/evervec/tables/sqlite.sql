-- The queries of attached tables in SQLite.

-- name: attached
select definition, position is null from evervec_attached order by kind

-- name: put_attached
insert into evervec_attached (kind, definition, position) values (?, ?, ?)
on conflict (kind) do update
set definition = excluded.definition, position = excluded.position, unfit = null, times_unfit = 0

-- name: drop_attached
delete from evervec_attached where kind = ?

-- name: drop_changes
delete from evervec_changes where kind = ?

-- name: any_changes
select 1 from evervec_changes limit 1

-- name: changes
select number, kind, tenant, id from evervec_changes order by number limit ?

-- name: folded
delete from evervec_changes where number <= ?

-- name: logged
select id from evervec_changes where kind = ?

-- name: unfinished
select definition, position from evervec_attached where position is not null order by kind

-- name: set_position
update evervec_attached set position = ? where kind = ?

-- name: marked
select unfit, times_unfit from evervec_attached where kind = ? and unfit is not null

-- name: mark
update evervec_attached set unfit = ?, times_unfit = times_unfit + 1 where kind = ?
returning times_unfit = 1

-- name: clear_mark
update evervec_attached set unfit = null, times_unfit = 0 where kind = ? and times_unfit = ?

-- name: triggers
-- with their table: triggers follow a table that is renamed
select name, tbl_name from sqlite_schema
where type = 'trigger' and name like 'evervec\_attached\_%' escape '\'

-- name: is_table
select 1 from sqlite_schema
where type = 'table' and name = ? collate nocase and sql not like 'create virtual%'

-- name: primary_key
select name from pragma_table_xinfo(?) where pk > 0

-- name: unique_indexes
select name from pragma_index_list(?) where "unique" and not partial
