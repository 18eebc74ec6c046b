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
