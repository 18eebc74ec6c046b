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
    weight integer not null default 1   -- of its turn, beside 1 for others
) without rowid;

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
