-- The queries of attached tables that differ in PostgreSQL.

-- name: find_table
-- where it was attached, or by exact name, or parsed as SQL; by row: a parent or a partition
select c.oid::bigint, n.nspname::text, c.relname::text, format('%I.%I', n.nspname, c.relname),
       c.relkind = 'p' or exists (select 1 from pg_inherits as i where c.oid in (i.inhrelid, i.inhparent)),
       greatest(c.reltuples, 0)::bigint, has_table_privilege(c.oid, 'trigger'),
       current_user::text
from pg_class as c
join pg_namespace as n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and case
    when $3::text is not null then n.nspname = $3 and c.relname = $4
    else c.oid = coalesce(to_regclass(quote_ident($1)), case when $2 then to_regclass($1) end) end

-- name: columns
with recursive bare (attnum, oid) as (
    select attnum, atttypid from pg_attribute
    where attrelid = $1 and attnum > 0 and not attisdropped
    union all
    select b.attnum, t.typbasetype from bare as b
    join pg_type as t on t.oid = b.oid and t.typtype = 'd')
select a.attname::text, format_type(a.atttypid, a.atttypmod), t.typname::text,
       t.typcategory::text, a.attgenerated = 'v',
       has_column_privilege(a.attrelid, a.attnum, 'select')
from pg_attribute as a
join bare as b on b.attnum = a.attnum
join pg_type as t on t.oid = b.oid and t.typtype <> 'd'
where a.attrelid = $1
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
select t.tgname::text, t.tgenabled in ('O', 'A') from pg_trigger as t
where t.tgrelid = $1 and not t.tgisinternal and starts_with(t.tgname, $2)

-- name: follower
select t.tgrelid::regclass::text from pg_trigger as t
where t.tgfoid = to_regproc('evervec.' || $1) and not t.tgisinternal and t.tgparentid = 0
limit 1

-- name: take_changes
delete from evervec.changes
where ctid = any (array (
    select ctid from evervec.changes limit $1 for update skip locked))
returning kind, tenant, id

