-- The queries of attached tables in PostgreSQL.

-- name: find_table
select c.oid, format('%I.%I', n.nspname, c.relname), c.relkind = 'p',
       greatest(c.reltuples, 0)::bigint
from pg_class as c
join pg_namespace as n on n.oid = c.relnamespace
where c.oid = coalesce(to_regclass(quote_ident($1)), case when $2 then to_regclass($1) end)
    and c.relkind in ('r', 'p')

-- name: columns
select a.attname, format_type(a.atttypid, a.atttypmod),
       exists (select 1 from pg_operator as o
               where o.oprname = '=' and o.oprleft = a.atttypid and o.oprright = a.atttypid)
           or a.atttypid in ('character varying'::regtype)
           or (select t.typtype in ('e', 'd', 'r', 'm') or t.typcategory = 'A'
               from pg_type as t where t.oid = a.atttypid)
from pg_attribute as a
where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
order by a.attnum

-- name: is_key
select exists (
    select 1 from pg_index as i
    where i.indrelid = $1 and i.indisunique and i.indpred is null and i.indexprs is null
        and (select array_agg(a.attname::text order by a.attname::text)
             from pg_attribute as a
             where a.attrelid = i.indrelid
                 and a.attnum = any ((i.indkey::smallint[])[0:i.indnkeyatts - 1]))
            = (select array_agg(k order by k) from unnest($2::text[]) as k))

-- name: triggers
select t.tgname, t.tgenabled = 'D' from pg_trigger as t
where t.tgrelid = $1 and not t.tgisinternal and starts_with(t.tgname, $2)

-- name: attached
select definition, position is null from evervec.attached order by kind

-- name: put_attached
insert into evervec.attached (kind, definition, position) values ($1, $2, '[]')
on conflict (kind) do update set definition = excluded.definition, position = '[]'

-- name: drop_attached
delete from evervec.attached where kind = $1

-- name: drop_changes
delete from evervec.changes where kind = $1

-- name: any_changes
select exists (select 1 from evervec.changes)

-- name: take_changes
delete from evervec.changes
where ctid = any (array (
    select ctid from evervec.changes limit $1 for update skip locked))
returning kind, tenant, id

-- name: any_unfinished
select exists (select 1 from evervec.attached where position is not null)

-- name: unfinished
select definition, position from evervec.attached
where position is not null
limit 1
for update skip locked

-- name: set_position
update evervec.attached set position = $1 where kind = $2
