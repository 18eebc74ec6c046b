-- How tables are split into hash partitions. {table} is the table, {parts} the number of partitions.

-- name: parts_of
-- how many partitions a table has, 0 if it has none; no row if there is no such table
select (select count(*) from pg_inherits as i where i.inhparent = c.oid)
from pg_class as c
where c.relnamespace = 'evervec'::regnamespace and c.relname = $1

-- name: tables
select c.relname::text from pg_class as c
where c.relnamespace = 'evervec'::regnamespace and c.relkind in ('r', 'p')
order by c.oid

-- name: take_turn
-- until the connection ends, also when its process is killed
select pg_try_advisory_lock(hashtextextended('evervec partitions', 0))

-- name: use_memory
-- for building indexes: so many megabytes, if the server is not set to more
select set_config('maintenance_work_mem', greatest(
    $1::bigint * 1024, pg_size_bytes(current_setting('maintenance_work_mem')) / 1024)::text, false)

-- name: columns
select a.attname::text from pg_attribute as a
where a.attrelid = $1::text::regclass and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
order by a.attnum

-- name: storage_parameters
select coalesce(array_to_string(c.reloptions, ', '), '') from pg_class as c
where c.oid = $1::text::regclass

-- name: indexes
-- those that are not a constraint's, and whether it is a graph
select c.relname::text, pg_get_indexdef(i.indexrelid), m.amname = 'hnsw'
from pg_index as i
join pg_class as c on c.oid = i.indexrelid
join pg_am as m on m.oid = c.relam
where i.indrelid = $1::text::regclass and i.indisvalid
    and not exists (select 1 from pg_constraint as k where k.conindid = i.indexrelid)

-- name: indexes_to_rename
select c.relname::text from pg_class as c
where c.relnamespace = 'evervec'::regnamespace and c.relkind in ('i', 'I')
    and starts_with(c.relname, $1)

-- name: dependents
-- what names a table: views, triggers, and functions that take its rows. For each the statement that
-- drops it (empty: it is replaced), and the one that creates it. Definitions name the table, which by
-- then is another one.
select '', format('create or replace view %s as %s', v.oid::regclass, pg_get_viewdef(v.oid))
from pg_class as v
where v.relkind = 'v' and v.oid in (
    select r.ev_class from pg_depend as d join pg_rewrite as r on r.oid = d.objid
    where d.classid = 'pg_rewrite'::regclass and d.refclassid = 'pg_class'::regclass
        and d.refobjid = $1::text::regclass)
union all
select format('drop trigger %I on %s', t.tgname, t.tgrelid::regclass), pg_get_triggerdef(t.oid)
from pg_trigger as t
where t.tgrelid = $1::text::regclass and not t.tgisinternal and t.tgname <> 'mirror'
union all
select format('drop function %s', p.oid::regprocedure), pg_get_functiondef(p.oid)
from pg_proc as p
where p.oid in (
    select d.objid from pg_depend as d join pg_type as y on y.oid = d.refobjid
    where d.classid = 'pg_proc'::regclass and d.refclassid = 'pg_type'::regclass
        and y.typrelid = $1::text::regclass)
union all
select '', format('grant %s on %s to %s', g.privilege_type, c.oid::regclass,
                  case when g.grantee = 0 then 'public' else g.grantee::regrole::text end)
from pg_class as c cross join lateral aclexplode(c.relacl) as g
where c.oid = $1::text::regclass and g.grantee <> c.relowner

-- name: deletion_triggers
-- those that are called once for a statement. Only the table that a statement names calls them, and
-- purges name a partition: to find its rows by their numbers, all others would be searched too
select pg_get_triggerdef(t.oid) from pg_trigger as t
where t.tgrelid = $1::text::regclass and not t.tgisinternal
    and t.tgtype & 1 = 0 and t.tgtype & 8 > 0

-- name: create_split
create table evervec.{table}_next (
    like evervec.{table} including defaults including generated including storage,
    {key} ({columns})
) partition by hash ({hash})

-- name: create_leaf
create table evervec.{table}_next_{part} partition of evervec.{table}_next
for values with (modulus {parts}, remainder {part}){with}

-- name: own_numbers
-- identity columns cannot be partitioned before PostgreSQL 17
do $$
begin
    create sequence if not exists evervec.{table}_numbers;
    alter table evervec.{table}_next alter column number
        set default nextval('evervec.{table}_numbers');
end
$$

-- name: go_on_numbering
select setval('evervec.{table}_numbers', nextval(pg_get_serial_sequence('evervec.{table}', 'number')))

-- name: create_mirror
-- each change of a row is made in the partitions too, in the same transaction
create function evervec.mirror_{table}() returns trigger
language plpgsql
as $mirror$
begin
    if tg_op = 'DELETE' or tg_op = 'UPDATE' and ({old_key}) is distinct from ({new_key}) then
        delete from evervec.{table}_next where ({columns}) = ({old_key});
    end if;
    if tg_op <> 'DELETE' then
        insert into evervec.{table}_next ({all}) values ({new_all})
        on conflict ({columns}) do update set {updates};
    end if;
    return null;
end
$mirror$

-- name: start_mirror
-- waits until no transaction that writes to the table is open
create trigger mirror after insert or update or delete on evervec.{table}
for each row execute function evervec.mirror_{table}()

-- name: copy_rows
-- locked, so that none of them is deleted before its copy can be
insert into evervec.{table}_next ({all})
select {all} from evervec.{table} where ctid >= $1::text::tid and ctid < $2::text::tid for share
on conflict do nothing

-- name: copied_upto
select value from evervec.meta where key = 'copied ' || $1::text

-- name: note_copied
insert into evervec.meta (key, value) values ('copied ' || $1::text, $2)
on conflict (key) do update set value = excluded.value

-- name: forget_copied
delete from evervec.meta where key = 'copied ' || $1::text
