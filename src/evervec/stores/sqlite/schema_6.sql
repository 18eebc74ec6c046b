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
