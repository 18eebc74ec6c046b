-- For an index outside of the store. `fence` is the number that the record's points carry there
-- (null: its seq). `doubt` is the fence of a write that began and was not finished, so the index
-- may hold other points than the entry says (null: no such write).
alter table evervec.ledger add column fence bigint;
alter table evervec.ledger add column doubt bigint;

-- From which number on a worker looks, when it starts, for records that lost their jobs.
insert into evervec.notes (name, value, revision)
select 'records without jobs', '0', 1 where exists (select 1 from evervec.records);

-- Dead letters in plain SQL: one, or all that were tried less often than `max_attempts`. They start
-- from zero, as after `evervec retry`.
create function evervec.retry_embedding_queue_item(job bigint) returns boolean
language sql
as $$
    with retried as (
        update evervec.jobs as j
        set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
            scheduled_for = evervec.now_seconds()
        where j.job_id = job and j.status = 'failed'
        returning 1)
    select exists (select 1 from retried)
$$;

create function evervec.retry_failed_embedding_queue_items(max_attempts integer default null)
returns bigint
language sql
as $$
    with dead as materialized (
        select j.job_id from evervec.jobs as j
        where j.failed_at is not null
            and ($1 is null or j.attempts < $1)
        order by j.job_id
        for update),
    retried as (
        update evervec.jobs as j
        set status = 'pending', attempts = 0, crashes = 0, error = null, completed_at = null,
            scheduled_for = evervec.now_seconds()
        from dead
        where j.job_id = dead.job_id
        returning 1)
    select count(*) from retried
$$;
