-- How jobs are claimed, and their leases copied to their rows.

-- The first due jobs of a tenant after a position, locked for the caller. `served`: the versions
-- whose jobs are wanted; null: all. The planner settings of `next_jobs` apply.
create function evervec.first_jobs(
    wanted integer,
    at double precision,
    owner text,
    served bigint[],
    most_crashes integer,
    behind_rank bigint,
    behind_time double precision,
    behind_job bigint,
    out jobs bigint[],
    out places tid[],
    out crashed integer
)
language plpgsql
as $$
begin
    select array_agg(f.job_id), array_agg(f.place), max(f.crashes) into jobs, places, crashed
    from (
        select q.job_id, q.ctid as place, q.crashes
        from evervec.ready as q
        where not q.later and q.tenant = owner and q.scheduled_for <= at
            and (q.rank, q.scheduled_for, q.job_id) > (behind_rank, behind_time, behind_job)
            and q.crashes <= most_crashes
            and q.op in ('embed', 'open', 'load', 'delete')
            and (served is null or q.version = any (served))
        order by q.rank, q.scheduled_for, q.job_id
        limit wanted for update of q skip locked) as f;
end
$$;

-- Due jobs, locked for the caller, with the places (ctid) of their rows in `ready`. `barred`:
-- versions whose jobs are left to other workers, as are those of unknown versions. Tenants take
-- turns in the order of their names, starting after `turn`. Each gets a share by its weight, and
-- what one does not need goes to the others. Within a tenant the order is highest priority, then
-- due time, then arrival. `suspect`: a worker crashed while it held one of them. `next_turn`: the
-- `turn` of the next call. `tenants`, `ranks`, `times` and `firsts`: the first job found of each
-- tenant.
--
-- `known` is where the caller last found the first job of a tenant. The index entries before it are
-- dead. While a transaction blocks vacuum, a claim that started at the front of the index would get
-- slower with every finished job.
create function evervec.next_jobs(
    wanted integer,
    at double precision,
    barred bigint[] default null,
    most_crashes integer default 2147483647,
    known text[] default '{}',
    known_ranks bigint[] default '{}',
    known_times double precision[] default '{}',
    known_jobs bigint[] default '{}',
    turn text default '',
    out jobs bigint[],
    out places tid[],
    out suspect boolean,
    out next_turn text,
    out tenants text[],
    out ranks bigint[],
    out times double precision[],
    out firsts bigint[]
)
language plpgsql
-- force a scan in index order that stops at the limit. One generic plan is reused: planning again
-- took longer than claiming a few jobs
set enable_sort = off
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    promoted_at_once constant integer := 10000;
    last_name constant text := repeat(chr(1114111), 65);  -- longer than the longest valid name
    served bigint[];
    skipped text[];
    step text := turn;
    stop text;
    candidate text;
    wrapped boolean := turn = '';
    owners text[] := '{}';
    weights integer[];
    hungry boolean[];
    behind_ranks bigint[] := '{}';
    behind_times double precision[] := '{}';
    behind_jobs bigint[] := '{}';
    room integer := wanted;
    share integer;
    asked integer;
    total bigint;
    place integer;
    found record;
    last record;
begin
    jobs := '{}';
    places := '{}';
    suspect := false;
    next_turn := turn;
    skipped := array(
        select p.tenant from evervec.pauses as p
        union all select h.tenant from evervec.holds as h where h.until > at);
    if '' = any (skipped) then
        return;
    end if;

    if exists (select 1 from evervec.ready as q where q.later and q.scheduled_for <= at) then
        update evervec.ready as q set later = false
        where q.ctid = any (array(
            select l.ctid from evervec.ready as l where l.later and l.scheduled_for <= at
            order by l.scheduled_for
            limit promoted_at_once for update skip locked));
    end if;

    -- find the tenants whose turn it is: step from one tenant to the next through the index
    while cardinality(owners) < wanted loop
        stop := null;
        if known <> '{}' or skipped <> '{}' then  -- do not scan entries before their first jobs
            select min(k collate "C") into stop
            from unnest(known || skipped) as k where k collate "C" > step;
        end if;
        select q.tenant into candidate from evervec.ready as q
        where not q.later and q.tenant > step and q.tenant < coalesce(stop, last_name)
        order by q.tenant limit 1;
        candidate := coalesce(candidate, stop);
        if candidate is null then
            exit when wrapped;
            wrapped := true;
            step := '';
            continue;
        end if;
        exit when wrapped and turn <> '' and candidate collate "C" > turn;
        step := candidate;
        continue when candidate = any (skipped);
        place := array_position(known, candidate);
        if place is not null then
            if exists (  -- a job of higher priority may have been added before it
                select 1 from evervec.ready as q
                where not q.later and q.tenant = candidate and q.rank < known_ranks[place]) then
                place := null;
            elsif not exists (
                select 1 from evervec.ready as q
                where not q.later and q.tenant = candidate
                    and (q.rank, q.scheduled_for, q.job_id)
                        >= (known_ranks[place], known_times[place], known_jobs[place])) then
                continue;
            end if;
        end if;
        owners := owners || candidate;
        behind_ranks := behind_ranks || coalesce(known_ranks[place], -9223372036854775807);
        behind_times := behind_times || coalesce(known_times[place], '-infinity');
        behind_jobs := behind_jobs || coalesce(known_jobs[place] - 1, 0::bigint);
    end loop;
    if owners = '{}' then
        return;
    end if;
    if barred is not null then
        served := array(select v.version from evervec.versions as v where v.version <> all (barred));
    end if;
    next_turn := owners[case when cardinality(owners) = wanted then wanted else 1 end];
    weights := array_fill(1, array[cardinality(owners)]);
    if cardinality(owners) > 1 and exists (select 1 from evervec.tenants as t where t.weight <> 1) then
        weights := array(
            select coalesce(t.weight, 1)
            from unnest(owners) with ordinality as o (tenant, place)
            left join evervec.tenants as t on t.tenant = o.tenant
            order by o.place);
    end if;
    hungry := array_fill(true, array[cardinality(owners)]);

    while room > 0 loop
        total := 1;
        if cardinality(owners) > 1 then
            select sum(w) into total from unnest(weights, hungry) as u (w, h) where h;
        end if;
        exit when total is null or not (true = any (hungry));
        share := room;
        for i in 1..cardinality(owners) loop
            continue when not hungry[i];
            exit when room <= 0;
            asked := least(room, greatest(weights[i], (share::bigint * weights[i] / total)::integer));
            select f.jobs, f.places, f.crashed into found
            from evervec.first_jobs(
                asked, at, owners[i], served, most_crashes,
                behind_ranks[i], behind_times[i], behind_jobs[i]) as f;
            hungry[i] := coalesce(cardinality(found.places), 0) = asked;
            continue when found.places is null;
            if tenants is null or owners[i] <> all (tenants) then
                tenants := tenants || owners[i];
                select ranks || q.rank, times || q.scheduled_for, firsts || q.job_id
                into ranks, times, firsts
                from evervec.ready as q where q.ctid = found.places[1];
            end if;
            if hungry[i] and room > cardinality(found.places) then
                select q.rank, q.scheduled_for, q.job_id into last
                from evervec.ready as q where q.ctid = found.places[asked];
                behind_ranks[i] := last.rank;
                behind_times[i] := last.scheduled_for;
                behind_jobs[i] := last.job_id;
            end if;
            room := room - cardinality(found.places);
            jobs := jobs || found.jobs;
            places := places || found.places;
            suspect := suspect or found.crashed > 0;
        end loop;
    end loop;
end
$$;

-- Claims due jobs, found as by `next_jobs`, which explains the parameters. If a worker crashed while
-- it held one of them, nothing is claimed until the caller says which jobs it has `chosen`, or that
-- they may be claimed `anyway`. A caller that has locked rows of `ready` itself gives their places,
-- and nothing is searched. The first row has no job: its `error` is the list that `Due` in
-- `leases.py` describes. The jobs follow in any order.
--
-- It is one function, whose plans are kept: to plan the statements again took a tenth of a claim, and
-- a function between them and the caller would copy each row once more.
create function evervec.claim_jobs(
    given_token text,
    given_worker text,
    lease double precision,
    wanted integer,
    barred bigint[] default null,
    most_crashes integer default 2147483647,
    known text[] default '{}',
    known_ranks bigint[] default '{}',
    known_times double precision[] default '{}',
    known_jobs bigint[] default '{}',
    turn text default '',
    chosen bigint[] default null,
    anyway boolean default false,
    given_places tid[] default null
) returns table (
    job_id bigint, tenant text, kind text, id text, version bigint, op text, seq bigint,
    priority integer, attempts integer, max_attempts integer, error text,
    created_at double precision, scheduled_for double precision, completed_at double precision,
    record bigint, crashes integer
)
language plpgsql
set enable_seqscan = off
set enable_hashjoin = on
set enable_nestloop = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
declare
    now double precision := evervec.now_seconds();
    begun timestamptz := clock_timestamp();
    due record;
begin
    perform set_config('synchronous_commit', 'off', true);
    if given_places is null then
        select d.* into due from evervec.next_jobs(
            wanted, now, barred, most_crashes, known, known_ranks, known_times, known_jobs, turn) as d;
    else
        select null::bigint[] as jobs, given_places as places, false as suspect, turn as next_turn,
               null::text[] as tenants, null::bigint[] as ranks, null::double precision[] as times,
               null::bigint[] as firsts
        into due;
    end if;
    error := json_build_array(
        now, extract(epoch from clock_timestamp() - begun),
        case when due.suspect then due.jobs end, due.suspect, due.next_turn, due.tenants, due.ranks,
        due.times, due.firsts)::text;
    return next;
    if due.places = '{}' or due.suspect and chosen is null and not anyway then
        return;
    end if;
    return query
        with taken as (
            delete from evervec.ready as q
            where q.ctid = any (due.places) and (chosen is null or q.job_id = any (chosen))
            returning q.job_id, q.tenant, q.version),
        counted as (
            insert into evervec.job_changes (tenant, version, ready)
            select t.tenant, t.version, -count(*) from taken as t group by t.tenant, t.version),
        held as materialized (
            select j.job_id, j.tenant, j.version, j.op, j.seq, j.priority, j.attempts,
                   j.max_attempts, j.error, j.created_at, j.scheduled_for, j.completed_at,
                   j.record, j.crashes
            from evervec.jobs as j
            where j.job_id = any (array(select t.job_id from taken as t)) and j.status = 'pending'),
        claim as (
            insert into evervec.claims
                (token, worker, started_at, expires_at, leased_until, held, job_ids, seqs)
            select given_token, given_worker, now, now + lease, now + lease, count(*),
                   array_agg(h.job_id order by h.job_id), array_agg(h.seq order by h.job_id)
            from held as h having count(*) > 0),
        named as materialized (
            select r.record, r.kind, r.id from evervec.records as r
            where r.record = any (array(select h.record from held as h)))
        select h.job_id, h.tenant::text, r.kind::text, r.id::text, h.version, h.op::text, h.seq,
               h.priority, h.attempts, h.max_attempts, h.error, h.created_at, h.scheduled_for,
               h.completed_at, h.record, h.crashes
        from held as h join named as r on r.record = h.record;
end
$$;

-- Copies leases from the rows of claims to the rows of these jobs. Called before jobs are renewed,
-- released, failed or recovered.
create function evervec.write_leases(tokens text[], jobs bigint[]) returns void
language plpgsql
set enable_seqscan = off
-- the transactions of the store turn hash joins off; a nested loop would compare each job with each
-- other, for minutes if a fleet of workers has crashed
set enable_hashjoin = on
set enable_nestloop = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
begin
    with claim as materialized (
        select c.token, c.worker, c.started_at, c.leased_until, c.job_ids, c.seqs
        from evervec.claims as c
        where c.token = any (tokens) and c.job_ids <> '{}'
        order by c.token
        for update),
    held as materialized (
        select c.token, c.worker, c.started_at, c.leased_until, u.job_id, u.seq,
               u.job_id in (select unnest(jobs)) as wanted
        from claim as c cross join unnest(c.job_ids, c.seqs) as u (job_id, seq)),
    locked as materialized (  -- in key order, so that calls cannot deadlock
        select j.job_id from evervec.jobs as j
        where j.job_id = any (array(select h.job_id from held as h where h.wanted))
        order by j.job_id
        for update),
    leased as (
        update evervec.jobs as j
        set status = 'processing', token = h.token, worker = h.worker, started_at = h.started_at,
            lease_expires_at = h.leased_until, claimed_seq = h.seq, attempts = j.attempts + 1
        from held as h
        where j.job_id = any (array(select l.job_id from locked as l)) and j.job_id = h.job_id
            and j.status = 'pending')
    update evervec.claims as c
    set written = c.written || coalesce(k.written, '{}'), job_ids = coalesce(k.job_ids, '{}'),
        seqs = coalesce(k.seqs, '{}')
    from (
        select h.token, array_agg(h.job_id) filter (where h.wanted) as written,
               array_agg(h.job_id order by h.job_id) filter (where not h.wanted) as job_ids,
               array_agg(h.seq order by h.job_id) filter (where not h.wanted) as seqs
        from held as h group by h.token) as k
    where c.token = k.token;
end
$$;
