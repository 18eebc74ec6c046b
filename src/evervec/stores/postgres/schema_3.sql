-- The jobs of a claim are written once and seldom read: to compress them costs more than it saves.
alter table evervec.claims alter column jobs set storage external;

-- To plan each statement of a claim anew took longer than to claim a few jobs. No plan but one is
-- open to them, whatever they are asked.
alter function evervec.due_jobs set plan_cache_mode = force_generic_plan;

-- A full claim at one priority, shared among the tenants that wait: those of `locked`, which came
-- first, and others found by steps from tenant to tenant, beginning behind `ring`.
create or replace function evervec.shared_jobs(
    room integer,
    level integer,
    at double precision,
    of_versions bigint[],
    most_crashes integer,
    locked bigint[],
    owners text[],
    inout crashed integer,
    ring text,
    out jobs bigint[],
    out looked_upto text
)
language plpgsql
-- in the order of the index, and no further than the limit
set enable_sort = off
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    most_steps constant integer := 32;
    step text := ring;
    candidate text;
    stop text;
    wrapped boolean := false;
    others text[] := '{}';
    share integer;
    owner text;
    got integer;
    last_time double precision;
    last_job bigint;
    more bigint[];
    most integer;
begin
    for i in 1..most_steps loop
        -- the next tenant that is not among the owners: dead entries of theirs are not walked
        loop
            select min(o collate "C") into stop from unnest(owners) as o where o collate "C" > step;
            if stop is null then
                select j.tenant into candidate from evervec.jobs as j
                where j.waits and j.priority = level and j.tenant > step
                order by j.tenant limit 1;
            else
                select j.tenant into candidate from evervec.jobs as j
                where j.waits and j.priority = level and j.tenant > step and j.tenant < stop
                order by j.tenant limit 1;
            end if;
            exit when candidate is not null or (stop is null and wrapped);
            wrapped := wrapped or stop is null;
            step := coalesce(stop, '');
            exit when wrapped and step collate "C" >= ring;  -- from there on it has looked
        end loop;
        exit when candidate is null or candidate = any (others)
            or (wrapped and candidate collate "C" > ring);
        step := candidate;
        others := others || candidate;
    end loop;
    looked_upto := step;
    if cardinality(owners) = 1 and cardinality(others) = 0 then
        jobs := locked;
        return;
    end if;

    share := greatest(1, room / (cardinality(owners) + cardinality(others)));
    foreach owner in array owners || others loop
        got := 0;
        last_time := '-infinity';
        last_job := 0;
        if owner = any (owners) then
            select count(*), max(j.scheduled_for) into got, last_time
            from evervec.jobs as j where j.job_id = any (locked) and j.tenant = owner;
            select max(j.job_id) into last_job from evervec.jobs as j
            where j.job_id = any (locked) and j.tenant = owner and j.scheduled_for = last_time;
        end if;
        continue when got >= share;
        select array_agg(f.job_id), max(f.crashes) into more, most
        from (
            select j.job_id, j.crashes from evervec.jobs as j
            where j.waits and j.priority = level and j.tenant = owner
                and j.scheduled_for <= at and (j.scheduled_for, j.job_id) > (last_time, last_job)
                and (of_versions is null or j.version = any (of_versions))
                and j.crashes <= most_crashes
                and j.op in ('embed', 'open', 'load', 'delete')
            order by j.scheduled_for, j.job_id
            limit share - got for no key update skip locked) as f;
        locked := locked || more;
        crashed := greatest(crashed, most);
    end loop;

    -- each tenant's first, then each one's second, until the room is full
    select array_agg(f.job_id order by f.scheduled_for, f.job_id) into jobs
    from (
        select j.job_id, j.scheduled_for from evervec.jobs as j
        where j.job_id = any (locked)
        order by row_number() over (partition by j.tenant order by j.scheduled_for, j.job_id),
                 j.scheduled_for, j.job_id
        limit room) as f;
end
$$;
