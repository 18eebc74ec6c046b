-- Limits and usage of tenants.

-- Triggers count usage. Each inserts a row here, so that transactions do not wait for each other;
-- workers add these rows to the totals.
create table evervec.usage_changes (
    tenant text collate "C" not null,
    kind text collate "C",
    version bigint,
    records bigint not null default 0,
    bytes bigint not null default 0,
    chunks bigint not null default 0,
    entries bigint not null default 0   -- entries of the ledger
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create index usage_changes_tenant on evervec.usage_changes (tenant);
alter table evervec.usage_changes replica identity full;  -- as for changes: the table has no key

alter table evervec.chunks add column entries bigint not null default 0;

-- the size of a record
create function evervec.bytes_of(title text, body text, data text, metadata text) returns bigint
language sql immutable parallel safe
return octet_length(body) + coalesce(octet_length(title), 0) + coalesce(octet_length(data), 0)
    + case when metadata = '{}' then 0 else octet_length(metadata) end;

create function evervec.count_records() returns trigger
language plpgsql
as $$
begin
    if tg_op = 'INSERT' then
        insert into evervec.usage_changes (tenant, kind, records, bytes)
        select n.tenant, n.kind, count(*), sum(evervec.bytes_of(n.title, n.text, n.data, n.metadata))
        from new_rows as n where n.state <> 'deleted' group by n.tenant, n.kind;
    elsif tg_op = 'DELETE' then
        insert into evervec.usage_changes (tenant, kind, records, bytes)
        select o.tenant, o.kind, -count(*), -sum(evervec.bytes_of(o.title, o.text, o.data, o.metadata))
        from old_rows as o where o.state <> 'deleted' group by o.tenant, o.kind;
    else
        insert into evervec.usage_changes (tenant, kind, records, bytes)
        select c.tenant, c.kind, sum(c.count), sum(c.count * c.size)
        from (
            select n.tenant, n.kind, 1 as count, evervec.bytes_of(n.title, n.text, n.data, n.metadata) as size
            from new_rows as n where n.state <> 'deleted'
            union all
            select o.tenant, o.kind, -1, evervec.bytes_of(o.title, o.text, o.data, o.metadata)
            from old_rows as o where o.state <> 'deleted') as c
        group by c.tenant, c.kind
        having sum(c.count) <> 0 or sum(c.count * c.size) <> 0;
    end if;
    return null;
end
$$;

create trigger count_added after insert on evervec.records
referencing new table as new_rows
for each statement execute function evervec.count_records();

create trigger count_changed after update on evervec.records
referencing old table as old_rows new table as new_rows
for each statement execute function evervec.count_records();

create trigger count_dropped after delete on evervec.records
referencing old table as old_rows
for each statement execute function evervec.count_records();

create function evervec.count_chunks() returns trigger
language plpgsql
set enable_seqscan = off
as $$
begin
    if tg_op = 'INSERT' then
        insert into evervec.usage_changes (tenant, version, chunks, entries)
        select r.tenant, n.version, sum(octet_length(n.chunks) / 24), count(*)
        from new_rows as n join evervec.records as r on r.record = n.record
        group by r.tenant, n.version;
    elsif tg_op = 'DELETE' then
        insert into evervec.usage_changes (tenant, version, chunks, entries)
        select r.tenant, o.version, -sum(octet_length(o.chunks) / 24), -count(*)
        from old_rows as o join evervec.records as r on r.record = o.record
        group by r.tenant, o.version;
    else
        insert into evervec.usage_changes (tenant, version, chunks, entries)
        select r.tenant, c.version, sum(c.chunks), 0
        from (
            select n.record, n.version, octet_length(n.chunks) / 24 as chunks from new_rows as n
            union all
            select o.record, o.version, -(octet_length(o.chunks) / 24) from old_rows as o) as c
        join evervec.records as r on r.record = c.record
        group by r.tenant, c.version
        having sum(c.chunks) <> 0;
    end if;
    return null;
end
$$;

create trigger count_added after insert on evervec.ledger
referencing new table as new_rows
for each statement execute function evervec.count_chunks();

create trigger count_changed after update on evervec.ledger
referencing old table as old_rows new table as new_rows
for each statement execute function evervec.count_chunks();

create trigger count_dropped after delete on evervec.ledger
referencing old table as old_rows
for each statement execute function evervec.count_chunks();
