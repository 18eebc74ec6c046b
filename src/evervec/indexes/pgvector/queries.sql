-- The queries of the pgvector index. {points} is the table of one collection.

-- name: extension
create extension if not exists vector

-- name: element_type
select 'vector'::regtype::oid::bigint

-- name: store_partitions
select count(*) from pg_inherits where inhparent = 'evervec.records'::regclass

-- name: tables
select replace(c.relname, 'points_', '')::bigint, format_type(a.atttypid, a.atttypmod), v.kind,
       (select count(*) from pg_inherits as i where i.inhparent = c.oid)
from pg_class as c
left join evervec.versions as v on c.relname = 'points_' || v.version
join pg_attribute as a on a.attrelid = c.oid and a.attname = 'vector'
where c.relnamespace = 'evervec'::regnamespace and c.relkind in ('r', 'p') and c.relname ~ '^points_[0-9]+$'

-- name: create_table
create table if not exists {points} (
    record bigint not null,
    seq bigint not null,
    position integer not null,
    tenant text collate "C" not null,
    hash bytea not null,
    vector {type} not null,
    primary key (record, hash)
){partitioned}

-- name: create_part
create table if not exists {points}_{part} partition of {points}
for values with (modulus {parts}, remainder {part})

-- name: store_inline
-- the vector is read with its row, without a second read from TOAST, if it fits into a page
alter table {points} alter column vector set storage plain

-- name: create_tenant_index
create index if not exists {name}_tenant on {points} (tenant)

-- name: join_writers
lock table evervec.removals in row exclusive mode

-- name: shut_out_writers
-- without a job's lock two writers of one record could interleave
lock table evervec.removals in share row exclusive mode

-- name: removed
select record, seq from evervec.removals where version = $1 and record = any ($2::bigint[])

-- name: present
select record, hash, seq from {points} where record = any ($1::bigint[])

-- name: delete_points
delete from {points} as p
using unnest($1::bigint[], $2::bytea[]) as n (record, hash)
where p.record = n.record and p.hash = n.hash

-- name: keep_points
update {points} as p set seq = n.seq, position = n.position
from unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::integer[])
    as n (record, hash, seq, position)
where p.record = n.record and p.hash = n.hash

-- name: insert_points
insert into {points} (tenant, record, hash, seq, position, vector)
select n.tenant, n.record, n.hash, n.seq, n.position, n.vector::{type}
from unnest($1::text[], $2::bigint[], $3::bytea[], $4::bigint[], $5::integer[], $6::vector[])
    as n (tenant, record, hash, seq, position, vector)

-- name: put_removals
insert into evervec.removals (version, record, seq)
select $1, n.record, n.seq from unnest($2::bigint[], $3::bigint[]) as n (record, seq)
on conflict (version, record) do update set seq = greatest(removals.seq, excluded.seq)

-- name: nearest
-- {order} allows or prevents the use of the HNSW index
select p.record, p.hash, (1 - (p.vector <=> $1::{type}))::double precision
from {points} as p
where p.tenant = $2{filter}
order by {order}
limit $3

-- name: filter
 and coalesce((
    select true from evervec.records as r where r.record = p.record and r.state = 'live'{filter}
), false)

-- name: among
 and p.record = any ($4::bigint[])

-- name: similarities
select record, max(1 - (vector <=> $1::{type}))::double precision
from {points}
where tenant = $2 and record = any ($3::bigint[])
group by record

-- name: vectors
select record, hash, position, vector_send(vector::vector)
from {points}
where record = any ($1::bigint[])
order by record, position

-- name: held
-- a point is identified by its primary key, record and hash
select record, tenant, hash, seq, null, abs((vector <#> vector) + 1) < 0.01
from {points}
where record > $1 and ($2::bigint is null or record <= $2) and ($3::text is null or tenant = $3)
order by record

-- name: remove_points
delete from {points} as p
using unnest($1::bigint[], $2::bytea[], $3::text[], $4::bigint[]) as n (record, hash, tenant, seq)
where p.record = n.record and p.hash = n.hash and p.tenant = n.tenant and p.seq = n.seq

-- name: stray_records
select tenant, count(distinct record) from {points}
where $1::text is null or tenant = $1
group by tenant

-- name: drop_stray_points
delete from {points} where tenant = $1

-- name: is_empty
select not exists (select 1 from {points})

-- name: tenant_size
select count(*) from (select 1 from {points} where tenant = $1 limit $2) as these

-- name: hnsw_state
-- how many rows all tables have (by the counts that triggers keep: the planner's estimate is missing
-- until the tables are analyzed), and how many of the indexes exist and are valid
select greatest(
           sum(greatest(c.reltuples, 0)),
           (select sum(k.chunks)
            from (select chunks from evervec.chunks where version = $2
                  union all
                  select chunks from evervec.usage_changes where version = $2) as k)),
       count(*) filter (where i.indisvalid)
from unnest($1::text[]) as n (name)
join pg_class as c on c.relname = n.name and c.relnamespace = 'evervec'::regnamespace
left join pg_class as x on x.relname = n.name || '_hnsw' and x.relnamespace = c.relnamespace
left join pg_index as i on i.indexrelid = x.oid

-- name: means
-- in kilobytes, and how many processes may help to build an index
select pg_size_bytes(current_setting('maintenance_work_mem')) / 1024,
       least(current_setting('max_parallel_maintenance_workers')::integer,
             current_setting('max_parallel_workers')::integer)

-- name: builds
-- the tables whose HNSW index is being built, which part of each is in it, and for how many seconds
-- the statement has run (null: of another user)
select t.relname::text,
       case when p.phase like 'building index: loading tuples%'
            then coalesce(p.blocks_done::double precision / nullif(p.blocks_total, 0), 0)
            when p.phase like 'initializing%' or p.phase like '%before build'
                or p.phase like 'building index%' then 0
            else 1 end,
       extract(epoch from clock_timestamp() - a.query_start)::double precision
from pg_stat_progress_create_index as p
join pg_class as t on t.oid = p.relid and t.relnamespace = 'evervec'::regnamespace
left join pg_stat_activity as a on a.pid = p.pid
where p.datname = current_database() and t.relname ~ '^points_[0-9]+(_[0-9]+)?$'

-- name: take_building
select pg_try_advisory_lock(1702260082, hashtext($1))

-- name: leaves
-- the partitions of a table
select c.relname::text from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
where i.inhparent = ('evervec.' || $1)::regclass

-- name: valid_indexes
select c.relname::text from pg_class as c join pg_index as i on i.indexrelid = c.oid
where c.relnamespace = 'evervec'::regnamespace and starts_with(c.relname, $1) and i.indisvalid

-- name: few
select r.record from evervec.records as r where r.tenant = $1 and {where} limit $2

-- name: drop_table
drop table if exists {points}

-- name: drop_removals
delete from evervec.removals where version = $1
