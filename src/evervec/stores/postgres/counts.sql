-- How many jobs are in each status, without counting them.

-- Each transaction inserts how it changes the counts, so that transactions do not wait for each
-- other; workers add these rows to the totals. The counts are exact: totals and changes together.
-- Triggers on `jobs` insert them, except for what is frequent: statements that claim jobs or set
-- them to done insert their own row.
create table evervec.job_changes (
    tenant text collate "C" not null,
    version bigint not null,
    ready bigint not null default 0,    -- jobs that can be claimed: rows of `ready`
    open bigint not null default 0,     -- pending and processing jobs
    done bigint not null default 0,
    failed bigint not null default 0,
    ended bigint not null default 0,    -- jobs that were done, and how long they took together
    seconds double precision not null default 0,
    last_done double precision
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

alter table evervec.job_changes replica identity full;  -- as for changes: the table has no key

-- The tenant with the empty name has the totals of all tenants.
create table evervec.job_counts (
    tenant text collate "C" not null,
    version bigint not null,
    ready bigint not null,
    open bigint not null,
    done bigint not null,
    failed bigint not null,
    ended double precision not null,    -- recent ones
    seconds double precision not null,
    last_done double precision,
    primary key (tenant, version)
) with (fillfactor = 50);

-- Adds changes to the totals, unless another process is doing so; returns how many.
create function evervec.fold_job_changes(most integer) returns bigint
language plpgsql
as $$
declare
    recent constant double precision := 10000;  -- of so many jobs, or twice as many, is the pace
    folded bigint;
begin
    if not exists (select 1 from evervec.job_changes)
        or not pg_try_advisory_xact_lock(hashtextextended('evervec job_counts', 0)) then
        return 0;
    end if;
    with gone as materialized (
        delete from evervec.job_changes
        where ctid = any (array(
            select ctid from evervec.job_changes limit most for update skip locked))
        returning *),
    sums as (
        select coalesce(tenant, '') as tenant, version, sum(ready) as ready, sum(open) as open,
               sum(done) as done, sum(failed) as failed, sum(ended) as ended,
               sum(seconds) as seconds, max(last_done) as last_done
        from gone
        group by grouping sets ((tenant, version), (version))),
    added as (
        insert into evervec.job_counts as c
        select * from sums
        on conflict (tenant, version) do update
            set ready = c.ready + excluded.ready, open = c.open + excluded.open,
                done = c.done + excluded.done, failed = c.failed + excluded.failed,
                ended = case when c.ended > recent then c.ended / 2 else c.ended end
                    + excluded.ended,
                seconds = case when c.ended > recent then c.seconds / 2 else c.seconds end
                    + excluded.seconds,
                last_done = greatest(c.last_done, excluded.last_done))
    select count(*) into folded from gone;
    return folded;
end
$$;

-- Counts all jobs again. Needed only after statements that changed `jobs` or `ready` without the
-- functions of evervec.
create function evervec.recount_jobs() returns void
language plpgsql
as $$
begin
    lock table evervec.jobs, evervec.ready in share row exclusive mode;
    delete from evervec.job_changes;
    delete from evervec.job_counts;
    insert into evervec.job_changes (tenant, version, ready)
    select tenant, version, count(*) from evervec.ready group by tenant, version;
    insert into evervec.job_changes
        (tenant, version, open, done, failed, ended, seconds, last_done)
    select tenant, version, count(*) filter (where status in ('pending', 'processing')),
           count(*) filter (where status = 'done'), count(*) filter (where status = 'failed'),
           count(started_at) filter (where status = 'done'),
           coalesce(sum(completed_at - started_at) filter (where status = 'done'), 0),
           max(completed_at) filter (where status = 'done')
    from evervec.jobs group by tenant, version;
end
$$;

-- When the first job that can be claimed, of any tenant or of one, was due: the first of each
-- tenant and priority, through the index. `below`: only jobs of a smaller rank count.
create function evervec.oldest_ready(
    owner text, below bigint default 9223372036854775807, skipped text[] default '{}'
) returns double precision
language plpgsql stable
set enable_sort = off
set enable_bitmapscan = off
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    oldest double precision;
    first record;
begin
    for is_later in 0..1 loop
        first := null;
        loop
            if first is null then
                select q.tenant, q.rank, q.scheduled_for into first from evervec.ready as q
                where q.later = (is_later = 1) and q.tenant >= coalesce(owner, '')
                order by q.tenant, q.rank, q.scheduled_for, q.job_id limit 1;
            else
                select q.tenant, q.rank, q.scheduled_for into first from evervec.ready as q
                where q.later = (is_later = 1) and (q.tenant, q.rank) > (first.tenant, first.rank)
                order by q.tenant, q.rank, q.scheduled_for, q.job_id limit 1;
            end if;
            exit when not found or first.tenant <> owner;
            if first.rank >= below then  -- as have all that follow of this tenant
                first.rank := 9223372036854775807;
            elsif first.tenant <> all (skipped) then
                oldest := least(oldest, first.scheduled_for);
            end if;
        end loop;
    end loop;
    return oldest;
end
$$;

-- How many records have open jobs for any of some versions.
create function evervec.open_records(owner text, versions bigint[]) returns bigint
language sql stable
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
    select count(distinct j.record)
    from (
        select q.job_id from evervec.ready as q where q.version = any (versions)
        union all
        select unnest(c.job_ids || c.written) from evervec.claims as c) as o
    join evervec.jobs as j on j.job_id = o.job_id
    where j.status in ('pending', 'processing') and j.version = any (versions)
        and (owner is null or j.tenant = owner)
$$;

-- Counts and times of the jobs of a tenant, or of all. A record with jobs for several versions is
-- one of `records`: only then are open jobs counted one by one.
create function evervec.job_stats(
    owner text,
    out pending bigint,
    out processing bigint,
    out done bigint,
    out failed bigint,
    out records bigint,
    out oldest double precision,
    out last_done double precision,
    out pace double precision,
    out unfolded bigint
)
language plpgsql stable
set plan_cache_mode = force_generic_plan  -- planning took four times as long as the rest
as $$
declare
    shared bigint[];
    theirs bigint;
begin
    with changes as materialized (
        select c.version, sum(c.ready) as ready, sum(c.open) as open, sum(c.done) as done,
               sum(c.failed) as failed, sum(c.ended) as ended, sum(c.seconds) as seconds,
               max(c.last_done) as last_done, count(*) as unfolded
        from evervec.job_changes as c
        where owner is null or c.tenant = owner
        group by c.version),
    counts as (
        select version, coalesce(t.ready, 0) + coalesce(c.ready, 0) as ready,
               coalesce(t.open, 0) + coalesce(c.open, 0) as open,
               coalesce(t.done, 0) + coalesce(c.done, 0) as done,
               coalesce(t.failed, 0) + coalesce(c.failed, 0) as failed,
               coalesce(t.ended, 0) + coalesce(c.ended, 0) as ended,
               coalesce(t.seconds, 0) + coalesce(c.seconds, 0) as seconds,
               greatest(t.last_done, c.last_done) as last_done, c.unfolded
        from (select * from evervec.job_counts as a where a.tenant = coalesce(owner, '')) as t
        full join changes as c using (version)),
    kinds as (  -- the kind of a version that was dropped is unknown: it may be any
        select sum(k.open) as open, array_agg(k.version) as versions
        from (
            select n.version, n.open, v.kind, bool_or(v.kind is null) over () as any_unknown
            from counts as n left join evervec.versions as v on v.version = n.version
            where n.open > 0) as k
        group by case when k.any_unknown then '' else k.kind end having count(*) > 1)
    select coalesce(sum(c.ready), 0), coalesce(sum(c.open) - sum(c.ready), 0),
           coalesce(sum(c.done), 0), coalesce(sum(c.failed), 0), coalesce(sum(c.open), 0),
           max(c.last_done), sum(c.seconds) / nullif(sum(c.ended), 0),
           coalesce(sum(c.unfolded), 0),
           (select array_agg(v) from kinds cross join unnest(kinds.versions) as v),
           (select sum(kinds.open) from kinds)
    into pending, processing, done, failed, records, last_done, pace, unfolded, shared, theirs
    from counts as c;
    if shared is not null then
        records := records - theirs + evervec.open_records(owner, shared);
    end if;
    oldest := evervec.oldest_ready(owner);
end
$$;
