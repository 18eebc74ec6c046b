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
