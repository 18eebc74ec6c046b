-- The queries of attached tables that differ in SQLite.

-- name: take_changes
delete from evervec_changes
where number in (select number from evervec_changes order by number limit ?)
returning kind, tenant, id

-- name: triggers
-- with their table: triggers follow a table that is renamed
select name, tbl_name, sql from sqlite_schema
where type = 'trigger' and name like 'evervec\_attached\_%' escape '\'

-- name: is_table
select 1 from sqlite_schema
where type = 'table' and name = ? collate nocase and sql not like 'create virtual%'

-- name: primary_key
select name from pragma_table_xinfo(?) where pk > 0

-- name: unique_indexes
select name from pragma_index_list(?) where "unique" and not partial
