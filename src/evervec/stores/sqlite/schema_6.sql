-- For an index outside of the store. `fence` is the number that the record's points carry there
-- (null: its seq). `doubt` is the fence of a write that began and was not finished, so the index
-- may hold other points than the entry says (null: no such write).
alter table evervec_ledger add column fence integer;
alter table evervec_ledger add column doubt integer;

-- A row of an attached table whose key or tenant cannot be a record's is set aside: an example of
-- such a row's id (null: none is known), and how many were set aside since the first.
alter table evervec_attached add column unfit text;
alter table evervec_attached add column times_unfit integer not null default 0;

-- From which number on a worker looks, when it starts, for records that lost their jobs.
insert into evervec_notes (name, value, revision)
select 'records without jobs', '0', 1 where exists (select 1 from evervec_records);

-- A token is a key of a short life: the key that it was made from, and as a JSON list the kinds that
-- it is for (null: all).
alter table evervec_keys add column parent text;
alter table evervec_keys add column kinds text;
create index evervec_keys_of_parent on evervec_keys (parent, created_at) where parent is not null;

-- The audit log: who did what, from where, and what became of it.
create table evervec_audit (
    entry integer primary key,
    noted_at real not null,
    key_id text,                     -- null: nobody with a key
    agent text not null,
    tenant text not null,            -- *: all
    action text not null,
    target text not null,
    outcome text not null,
    request_id text,
    client text                      -- an address
);

create index evervec_audit_at on evervec_audit (noted_at);

-- Tenants take turns. Jobs that are not due yet are kept apart (`later`) from those that can be
-- claimed, and cost nothing until a claim finds that their time has come.
alter table evervec_jobs add column later integer not null default 0;
drop index evervec_jobs_ready;
update evervec_jobs set later = 1
where status = 'pending' and scheduled_for > (julianday('now') - 2440587.5) * 86400.0;
-- with version and record at the end it also answers stats alone
create index evervec_jobs_turns on evervec_jobs
    (later, tenant, priority desc, scheduled_for, job_id, version, record) where status = 'pending';
create index evervec_jobs_later on evervec_jobs (scheduled_for)
    where status = 'pending' and later = 1;

-- What is set for single tenants; null: as for all.
create table evervec_tenants (
    tenant text primary key,
    weight integer,                 -- of its turn, beside 1 for others
    kinds integer,
    records integer,
    bytes integer,
    chunks integer,
    tokens integer,                 -- a day
    money real                      -- a day
) without rowid;

-- Tenants whose jobs wait because what they may use in a day is used up.
create table evervec_holds (
    tenant text primary key,
    until real not null
) without rowid;

-- What tenants have, counted in the transaction of each change: by triggers, but for new records,
-- which come by the thousand and are counted once for all of them.
create table evervec_usage (
    tenant text not null,
    kind text not null,
    records integer not null,       -- that are not deleted
    bytes integer not null,         -- of their titles, texts, metadata and typed data
    primary key (tenant, kind)
) without rowid;

create table evervec_chunks (
    tenant text not null,
    version integer not null,
    chunks integer not null,        -- in the ledger: each takes 24 bytes of an entry
    primary key (tenant, version)
) without rowid;

insert into evervec_usage (tenant, kind, records, bytes)
select tenant, kind, count(*), sum(
    length(cast(text as blob)) + coalesce(length(cast(title as blob)), 0)
    + coalesce(length(cast(data as blob)), 0)
    + iif(metadata = '{}', 0, length(cast(metadata as blob))))
from evervec_records where state <> 'deleted' group by tenant, kind;

insert into evervec_chunks (tenant, version, chunks)
select r.tenant, l.version, sum(length(l.chunks) / 24)
from evervec_ledger as l join evervec_records as r on r.record = l.record
group by r.tenant, l.version;

create trigger evervec_usage_changed after update of state, title, text, metadata, data
on evervec_records begin
    insert into evervec_usage (tenant, kind, records, bytes)
    values (new.tenant, new.kind, (new.state <> 'deleted') - (old.state <> 'deleted'),
            iif(new.state = 'deleted', 0,
                length(cast(new.text as blob)) + coalesce(length(cast(new.title as blob)), 0)
                + coalesce(length(cast(new.data as blob)), 0)
                + iif(new.metadata = '{}', 0, length(cast(new.metadata as blob))))
            - iif(old.state = 'deleted', 0,
                length(cast(old.text as blob)) + coalesce(length(cast(old.title as blob)), 0)
                + coalesce(length(cast(old.data as blob)), 0)
                + iif(old.metadata = '{}', 0, length(cast(old.metadata as blob)))))
    on conflict do update set records = records + excluded.records, bytes = bytes + excluded.bytes;
end;
create trigger evervec_usage_dropped after delete on evervec_records
when old.state <> 'deleted' begin
    update evervec_usage
    set records = records - 1,
        bytes = bytes - length(cast(old.text as blob))
            - coalesce(length(cast(old.title as blob)), 0)
            - coalesce(length(cast(old.data as blob)), 0)
            - iif(old.metadata = '{}', 0, length(cast(old.metadata as blob)))
    where tenant = old.tenant and kind = old.kind;
end;
create trigger evervec_chunks_added after insert on evervec_ledger begin
    insert into evervec_chunks (tenant, version, chunks)
    select tenant, new.version, length(new.chunks) / 24
    from evervec_records where record = new.record
    on conflict do update set chunks = chunks + excluded.chunks;
end;
create trigger evervec_chunks_changed after update of chunks on evervec_ledger begin
    update evervec_chunks
    set chunks = chunks + length(new.chunks) / 24 - length(old.chunks) / 24
    where version = new.version
        and tenant = (select tenant from evervec_records where record = new.record);
end;
create trigger evervec_chunks_dropped after delete on evervec_ledger begin
    update evervec_chunks set chunks = chunks - length(old.chunks) / 24
    where version = old.version
        and tenant = (select tenant from evervec_records where record = old.record);
end;

-- A number that is another one after any change of versions: what is known of them is read again.
-- Not of the times at which they were last written to.
insert into evervec_meta (key, value) values ('versions', 0);
create trigger evervec_versions_added after insert on evervec_versions begin
    update evervec_meta set value = random() where key = 'versions';
end;
create trigger evervec_versions_dropped after delete on evervec_versions begin
    update evervec_meta set value = random() where key = 'versions';
end;
create trigger evervec_versions_changed
after update of state, name, provider, model, dimensions, chunker, app, cut_since
on evervec_versions begin
    update evervec_meta set value = random() where key = 'versions';
end;
