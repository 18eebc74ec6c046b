-- Tenants whose jobs are not claimed; the empty name stands for all.
create table evervec.pauses (
    tenant text collate "C" primary key
);

insert into evervec.pauses (tenant)
select '' from evervec.meta where key = 'paused' and value <> 0;

delete from evervec.meta where key = 'paused';

drop function if exists evervec.due_jobs;

drop function if exists evervec.shared_jobs;

-- Due jobs, locked for whoever asks: highest priority first; at one priority each tenant that
-- waits gets a share, and within a tenant they come by time, then by arrival. `suspect`: the
-- worker of one of them died of something. `paused`: tenants that were passed over. `levels`,
-- `times` and `firsts`: by priority, the first that was found.
--
-- `known` says where a caller last found the first job of a priority. What lies before it in the
-- index is a paused tenant's, or dead, and while some transaction keeps it from being cleared away
-- a claim that began at the front would get slower with every job that is done.
create function evervec.due_jobs(
    wanted integer,
    at double precision,
    of_versions bigint[] default null,
    most_crashes integer default 2147483647,
    known integer[] default '{}',
    known_times double precision[] default '{}',
    known_jobs bigint[] default '{}',
    ring text default '',
    out jobs bigint[],
    out suspect boolean,
    out looked_upto text,
    out paused text[],
    out levels integer[],
    out times double precision[],
    out firsts bigint[]
)
language plpgsql
-- in the order of the index, and no further than the limit; no other plan is open to it, and to
-- make it anew took longer than to claim a few jobs
set enable_sort = off
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    level bigint := 1::bigint << 40;
    below integer;
    place integer;
    room integer := wanted;
    locked bigint[];
    owners text[];
    soonest double precision;
    crashed integer;
begin
    jobs := '{}';
    suspect := false;
    looked_upto := ring;
    paused := array(select p.tenant from evervec.pauses as p order by p.tenant);
    if '' = any (paused) then
        return;
    end if;
    while room > 0 loop
        -- the next priority: one that is known, or one between two that are
        select max(k) into below from unnest(known) as k where k < level;
        select coalesce(
            (select j.priority from evervec.jobs as j
             where j.waits and j.priority < level
                 and j.priority > coalesce(below, -2147483649)
             order by j.priority desc limit 1), below) into level;
        exit when level is null;
        place := array_position(known, level::integer);

        select array_agg(f.job_id), array_agg(f.tenant), min(f.scheduled_for), max(f.crashes)
        into locked, owners, soonest, crashed
        from (
            select j.job_id, j.tenant, j.scheduled_for, j.crashes from evervec.jobs as j
            where j.waits and j.priority = level and j.scheduled_for <= at
                and (j.scheduled_for, j.job_id)
                    >= (coalesce(known_times[place], '-infinity'), coalesce(known_jobs[place], 0))
                and j.tenant <> all (paused)
                and (of_versions is null or j.version = any (of_versions))
                and j.crashes <= most_crashes
                and j.op in ('embed', 'open', 'load', 'delete')
            order by j.scheduled_for, j.job_id
            limit room for no key update skip locked) as f;
        if locked is null and paused <> '{}' then  -- one who commits now may have begun before
            levels := levels || level::integer;
            times := times || at - 60;
            firsts := firsts || 0::bigint;
        end if;
        continue when locked is null;
        levels := levels || level::integer;
        times := times || soonest;
        firsts := firsts || locked[1];

        if cardinality(locked) = room then  -- more wait than there is room for: share it
            select s.jobs, s.crashed, s.looked_upto into locked, crashed, looked_upto
            from evervec.shared_jobs(
                room, level::integer, at, of_versions, most_crashes, locked,
                array(select distinct o from unnest(owners) as o), paused, crashed, ring) as s;
        end if;
        room := room - cardinality(locked);
        jobs := jobs || locked;
        suspect := suspect or crashed > 0;
    end loop;
end
$$;

-- A full claim at one priority, shared among the tenants that wait and are not paused: those of
-- `locked`, which came first, and others found by steps from tenant to tenant, beginning behind
-- `ring`.
create function evervec.shared_jobs(
    room integer,
    level integer,
    at double precision,
    of_versions bigint[],
    most_crashes integer,
    locked bigint[],
    owners text[],
    paused text[],
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
        -- the next tenant that is not among those: dead entries of the owners are not walked
        loop
            select min(o collate "C") into stop
            from unnest(owners || paused) as o where o collate "C" > step;
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

-- The jobs of a claim are written once and seldom read: to compress them costs more than it saves.
alter table evervec.claims alter column jobs set storage external;
