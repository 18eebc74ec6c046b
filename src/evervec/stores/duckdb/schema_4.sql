-- For an index outside of the store. `fence` is the number that the record's points carry there
-- (null: its seq). `doubt` is the fence of a write that began and was not finished, so the index
-- may hold other points than the entry says (null: no such write).
alter table evervec_ledger add column fence bigint;
alter table evervec_ledger add column doubt bigint;

-- From which number on a worker looks, when it starts, for records that lost their jobs.
insert into evervec_notes (name, value, revision)
select 'records without jobs', '0', 1 where exists (select 1 from evervec_records);

-- A token is a key of a short life: the key that it was made from, and as a JSON list the kinds that
-- it is for (null: all).
alter table evervec_keys add column parent varchar;
alter table evervec_keys add column kinds varchar;

-- The audit log: who did what, from where, and what became of it.
create sequence evervec_audit_entries;
create table evervec_audit (
    entry bigint not null default nextval('evervec_audit_entries'),
    noted_at double not null,
    key_id varchar,                     -- null: nobody with a key
    agent varchar not null,
    tenant varchar not null,            -- *: all
    action varchar not null,
    target varchar not null,
    outcome varchar not null,
    request_id varchar,
    client varchar                      -- an address
);

-- What is set for single tenants; null: as for all.
create table evervec_tenants (
    tenant varchar not null,
    weight bigint,                  -- of its turn, beside 1 for others
    kinds bigint,
    records bigint,
    bytes bigint,
    chunks bigint,
    tokens bigint,                  -- a day
    money double                    -- a day
);

-- Tenants whose jobs wait because what they may use in a day is used up.
create table evervec_holds (
    tenant varchar not null,
    until double not null
);

-- What tenants have, counted in the transaction of each change.
create table evervec_usage (
    tenant varchar not null,
    kind varchar not null,
    records bigint not null,        -- that are not deleted
    bytes bigint not null           -- of their titles, texts, metadata and typed data
);

create table evervec_chunks (
    tenant varchar not null,
    version bigint not null,
    chunks bigint not null          -- in the ledger: each takes 24 bytes of an entry
);

insert into evervec_usage (tenant, kind, records, bytes)
select tenant, kind, count(*), sum(
    strlen(text) + coalesce(strlen(title), 0) + coalesce(strlen(data), 0)
    + case when metadata = '{}' then 0 else strlen(metadata) end)
from evervec_records where state <> 'deleted' group by tenant, kind;

insert into evervec_chunks (tenant, version, chunks)
select r.tenant, l.version, sum(octet_length(l.chunks) // 24)
from evervec_ledger as l join evervec_records as r on r.record = l.record
group by r.tenant, l.version;
