-- The queries of attached tables that the engines share, in the neutral form of evervec.stores.named.

-- name: attached
select definition, position is null from evervec_attached order by kind

-- name: put_attached
insert into evervec_attached (kind, definition, position) values ($1, $2, $3)
on conflict (kind) do update
set definition = excluded.definition, position = excluded.position, unfit = null, times_unfit = 0

-- name: drop_attached
delete from evervec_attached where kind = $1

-- name: drop_changes
delete from evervec_changes where kind = $1

-- name: any_changes
select exists (select 1 from evervec_changes)

-- name: logged
select id from evervec_changes where kind = $1

-- name: any_unfinished
select exists (select 1 from evervec_attached where position is not null)

-- name: unfinished
select definition, position from evervec_attached where position is not null order by kind

-- name: set_position
update evervec_attached set position = $1 where kind = $2

-- name: marked
select unfit, times_unfit from evervec_attached where kind = $1 and unfit is not null

-- name: mark
update evervec_attached set unfit = $1, times_unfit = times_unfit + 1 where kind = $2
returning times_unfit = 1

-- name: clear_mark
update evervec_attached set unfit = null, times_unfit = 0 where kind = $1 and times_unfit = $2
