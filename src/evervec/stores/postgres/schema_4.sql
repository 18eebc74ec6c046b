-- Jobs that can be claimed have a narrow table of their own. A claim takes its rows away and leaves
-- the jobs as they are: who holds them stands in the claim's row, until there is more to tell of
-- one of them than that it is done.

-- What commits between the copy and the triggers would stand nowhere.
lock table evervec.jobs, evervec.claims in access exclusive mode;

create table evervec.ready (
    job_id bigint not null,
    version bigint not null,
    scheduled_for double precision not null,
    priority integer not null,
    crashes integer not null,
    tenant text collate "C" not null,
    op text collate "C" not null
) with (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

insert into evervec.ready (job_id, version, scheduled_for, priority, crashes, tenant, op)
select job_id, version, scheduled_for, priority, crashes, tenant, op
from evervec.jobs where status = 'pending'
order by priority desc, scheduled_for, job_id;

create unique index ready_order on evervec.ready (priority desc, scheduled_for, job_id);
-- for fairness
create index ready_by_tenant on evervec.ready (priority desc, tenant, scheduled_for, job_id);
alter table evervec.ready replica identity using index ready_order;

-- With the column go the two indexes on those that wait. No index is on what changes in a job's
-- life, and its page has room for the row as it will be once it is done: it changes in place.
alter table evervec.jobs drop column waits;
alter table evervec.jobs set (fillfactor = 40);
alter index evervec.jobs_pkey reset (fillfactor);
alter index evervec.jobs_record_version_key reset (fillfactor);

-- The jobs of which only the claim tells that they are leased, until when, in the order of their
-- numbers, with the seq of each when it was claimed; and those whose own rows tell it, or did. That
-- column's old name is gone, so that a process of an older evervec clears away no claim that it does
-- not understand.
alter table evervec.claims rename column jobs to written;
alter table evervec.claims alter column written set default '{}';
alter table evervec.claims
    add column worker text not null default '',
    add column leased_until double precision not null default 0,
    add column job_ids bigint[] not null default '{}',
    add column seqs bigint[] not null default '{}';
alter table evervec.claims
    alter column job_ids set storage external,
    alter column seqs set storage external;

-- Jobs as they stand, also those of which only their claim tells that they are leased.
create view evervec.current_jobs as
select j.job_id, j.record, j.version, j.seq, coalesce(c.seq, j.claimed_seq) as claimed_seq,
       j.scheduled_for, j.created_at, coalesce(c.started_at, j.started_at) as started_at,
       j.completed_at, coalesce(c.leased_until, j.lease_expires_at) as lease_expires_at, j.priority,
       case when c.token is null then j.attempts else j.attempts + 1 end as attempts, j.crashes,
       j.max_attempts, j.tenant, j.op,
       case when c.token is null then j.status else 'processing' end as status,
       coalesce(c.token, j.token) as token, coalesce(c.worker, j.worker) as worker, j.error,
       j.failed_at
from evervec.jobs as j
left join (
    select c.token, c.worker, c.started_at, c.leased_until, held.job_id, held.seq
    from evervec.claims as c
    cross join unnest(c.job_ids, c.seqs) as held (job_id, seq)
) as c on c.job_id = j.job_id;

-- The jobs that can be claimed follow those that wait.
create function evervec.follow_new_jobs() returns trigger
language plpgsql
as $$
begin
    insert into evervec.ready (job_id, version, scheduled_for, priority, crashes, tenant, op)
    select job_id, version, scheduled_for, priority, crashes, tenant, op
    from new_jobs where status = 'pending';
    return null;
end
$$;

create function evervec.follow_changed_job() returns trigger
language plpgsql
set enable_seqscan = off
as $$
begin
    if old.status <> 'pending' then
        insert into evervec.ready (job_id, version, scheduled_for, priority, crashes, tenant, op)
        values (new.job_id, new.version, new.scheduled_for, new.priority, new.crashes, new.tenant,
                new.op)
        on conflict do nothing;
    else  -- where it stands: one that is claimed stands nowhere
        perform 1 from evervec.ready as q
        where (q.priority, q.scheduled_for, q.job_id)
            = (old.priority, old.scheduled_for, old.job_id)
        for update;
        if not found then
            return null;
        end if;
        if (new.priority, new.scheduled_for, new.crashes, new.op)
            <> (old.priority, old.scheduled_for, old.crashes, old.op) then
            update evervec.ready as q
            set priority = new.priority, scheduled_for = new.scheduled_for, crashes = new.crashes,
                op = new.op
            where (q.priority, q.scheduled_for, q.job_id)
                = (old.priority, old.scheduled_for, old.job_id);
        end if;
    end if;
    return null;
end
$$;

create function evervec.follow_dropped_jobs() returns trigger
language plpgsql
set enable_seqscan = off
as $$
begin
    delete from evervec.ready as q using old_jobs as o
    where o.status = 'pending' and (q.priority, q.scheduled_for, q.job_id)
        = (o.priority, o.scheduled_for, o.job_id);
    return null;
end
$$;

create trigger follow_new after insert on evervec.jobs
referencing new table as new_jobs
for each statement execute function evervec.follow_new_jobs();

create trigger follow_changed after update of status, scheduled_for, priority on evervec.jobs
for each row when (new.status = 'pending') execute function evervec.follow_changed_job();

create trigger follow_dropped after delete on evervec.jobs
referencing old table as old_jobs
for each statement execute function evervec.follow_dropped_jobs();

drop function if exists evervec.due_jobs;

drop function if exists evervec.shared_jobs;

-- Due jobs, locked for whoever asks, with their places among those that can be claimed: highest
-- priority first; at one priority each tenant that waits gets a share, and within a tenant they
-- come by time, then by arrival. `suspect`: the worker of one of them died of something. `paused`:
-- tenants that were passed over. `levels`, `times` and `firsts`: by priority, the first that was
-- found.
--
-- `known` says where a caller last found the first job of a priority. What lies before it in the
-- index is a paused tenant's, or dead, and while some transaction keeps it from being cleared away
-- a claim that began at the front would get slower with every job that is done.
create function evervec.next_jobs(
    wanted integer,
    at double precision,
    of_versions bigint[] default null,
    most_crashes integer default 2147483647,
    known integer[] default '{}',
    known_times double precision[] default '{}',
    known_jobs bigint[] default '{}',
    ring text default '',
    out jobs bigint[],
    out places tid[],
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
    ids bigint[];
    locked tid[];
    owners text[];
    soonest double precision;
    crashed integer;
begin
    jobs := '{}';
    places := '{}';
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
            (select q.priority from evervec.ready as q
             where q.priority < level and q.priority > coalesce(below, -2147483649)
             order by q.priority desc limit 1), below) into level;
        exit when level is null;
        place := array_position(known, level::integer);

        select array_agg(f.job_id), array_agg(f.place), array_agg(f.tenant), min(f.scheduled_for),
               max(f.crashes)
        into ids, locked, owners, soonest, crashed
        from (
            select q.job_id, q.ctid as place, q.tenant, q.scheduled_for, q.crashes
            from evervec.ready as q
            where q.priority = level and q.scheduled_for <= at
                and (q.scheduled_for, q.job_id)
                    >= (coalesce(known_times[place], '-infinity'), coalesce(known_jobs[place], 0))
                and q.tenant <> all (paused)
                and (of_versions is null or q.version = any (of_versions))
                and q.crashes <= most_crashes
                and q.op in ('embed', 'open', 'load', 'delete')
            order by q.scheduled_for, q.job_id
            limit room for update skip locked) as f;
        if locked is null and paused <> '{}' then  -- one who commits now may have begun before
            levels := levels || level::integer;
            times := times || at - 60;
            firsts := firsts || 0::bigint;
        end if;
        continue when locked is null;
        levels := levels || level::integer;
        times := times || soonest;
        firsts := firsts || ids[1];

        if cardinality(locked) = room then  -- more wait than there is room for: share it
            select s.jobs, s.places, s.crashed, s.looked_upto
            into ids, locked, crashed, looked_upto
            from evervec.shared_jobs(
                room, level::integer, at, of_versions, most_crashes, ids, locked,
                array(select distinct o from unnest(owners) as o), paused, crashed, ring) as s;
        end if;
        room := room - cardinality(locked);
        jobs := jobs || ids;
        places := places || locked;
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
    ids bigint[],
    locked tid[],
    owners text[],
    paused text[],
    inout crashed integer,
    ring text,
    out jobs bigint[],
    out places tid[],
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
    more tid[];
    most integer;
begin
    for i in 1..most_steps loop
        -- the next tenant that is not among those: dead entries of the owners are not walked
        loop
            select min(o collate "C") into stop
            from unnest(owners || paused) as o where o collate "C" > step;
            if stop is null then
                select q.tenant into candidate from evervec.ready as q
                where q.priority = level and q.tenant > step
                order by q.tenant limit 1;
            else
                select q.tenant into candidate from evervec.ready as q
                where q.priority = level and q.tenant > step and q.tenant < stop
                order by q.tenant limit 1;
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
        jobs := ids;
        places := locked;
        return;
    end if;

    share := greatest(1, room / (cardinality(owners) + cardinality(others)));
    foreach owner in array owners || others loop
        got := 0;
        last_time := '-infinity';
        last_job := 0;
        if owner = any (owners) then
            select count(*), max(q.scheduled_for) into got, last_time
            from evervec.ready as q where q.ctid = any (locked) and q.tenant = owner;
            select max(q.job_id) into last_job from evervec.ready as q
            where q.ctid = any (locked) and q.tenant = owner and q.scheduled_for = last_time;
        end if;
        continue when got >= share;
        select array_agg(f.place), max(f.crashes) into more, most
        from (
            select q.ctid as place, q.crashes from evervec.ready as q
            where q.priority = level and q.tenant = owner
                and q.scheduled_for <= at and (q.scheduled_for, q.job_id) > (last_time, last_job)
                and (of_versions is null or q.version = any (of_versions))
                and q.crashes <= most_crashes
                and q.op in ('embed', 'open', 'load', 'delete')
            order by q.scheduled_for, q.job_id
            limit share - got for update skip locked) as f;
        locked := locked || more;
        crashed := greatest(crashed, most);
    end loop;

    -- each tenant's first, then each one's second, until the room is full
    select array_agg(f.job_id order by f.scheduled_for, f.job_id),
           array_agg(f.place order by f.scheduled_for, f.job_id)
    into jobs, places
    from (
        select q.job_id, q.ctid as place, q.scheduled_for from evervec.ready as q
        where q.ctid = any (locked)
        order by row_number() over (partition by q.tenant order by q.scheduled_for, q.job_id),
                 q.scheduled_for, q.job_id
        limit room) as f;
end
$$;

-- Claims due jobs by their places; `chosen`, if given, says which of them. In the order of claims.
create function evervec.take_jobs(
    given_token text, given_worker text, at double precision, until double precision,
    places tid[], chosen bigint[] default null
) returns table (
    job_id bigint, tenant text, kind text, id text, version bigint, op text, seq bigint,
    priority integer, attempts integer, max_attempts integer, error text,
    created_at double precision, scheduled_for double precision, completed_at double precision,
    record bigint, crashes integer
)
language plpgsql
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
begin
    return query
        with taken as (
            delete from evervec.ready as q
            where q.ctid = any (places) and (chosen is null or q.job_id = any (chosen))
            returning q.job_id),
        held as (
            select j.job_id, j.tenant::text, r.kind::text, r.id::text, j.version, j.op::text, j.seq,
                   j.priority, j.attempts, j.max_attempts, j.error, j.created_at, j.scheduled_for,
                   j.completed_at, j.record, j.crashes
            from evervec.jobs as j
            join evervec.records as r on r.record = j.record
            where j.job_id = any (array(select t.job_id from taken as t)) and j.status = 'pending'),
        claim as (
            insert into evervec.claims
                (token, worker, started_at, expires_at, leased_until, held, job_ids, seqs)
            select given_token, given_worker, at, until, until, count(*),
                   array_agg(h.job_id order by h.job_id), array_agg(h.seq order by h.job_id)
            from held as h having count(*) > 0)
        select * from held as h order by h.priority desc, h.scheduled_for, h.job_id;
end
$$;

-- Writes to jobs of claims that they are leased: before they are renewed, given back, failed, or
-- taken over.
create function evervec.write_leases(tokens text[], jobs bigint[]) returns void
language plpgsql
set enable_seqscan = off
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
    locked as materialized (  -- in the order of their keys
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

-- The queue for programs in other languages: claim, then finish, fail, release or renew with the
-- token of the claim. Each answers whether the token was still good.

create or replace function evervec.claim_embedding_queue_items(
    max_items integer,
    lease_seconds double precision default 60,
    worker_name text default 'sql'
) returns table (
    job_id bigint, token text, tenant text, kind text, record_id text, op text, seq bigint,
    title text, body text, metadata text, attempts integer, max_attempts integer,
    lease_expires_at double precision
)
language plpgsql
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    now double precision := evervec.now_seconds();
    due tid[];
    made text := replace(gen_random_uuid()::text, '-', '');
begin
    select d.places into due from evervec.next_jobs(max_items, now, null, 0) as d;
    if due = '{}' then  -- what a worker died of comes alone
        select d.places into due from evervec.next_jobs(1, now) as d;
    end if;
    return query
        select t.job_id, made, t.tenant, t.kind, t.id, t.op, t.seq, r.title, r.text, r.metadata,
               t.attempts + 1, t.max_attempts, now + lease_seconds
        from evervec.take_jobs(made, worker_name, now, now + lease_seconds, due) as t
        join evervec.records as r on r.record = t.record
        order by t.priority desc, t.scheduled_for, t.job_id;
end
$$;

create or replace function evervec.finish_embedding_queue_item(job bigint, given_token text)
returns boolean
language plpgsql
as $$
declare
    now double precision := evervec.now_seconds();
    held evervec.jobs;
begin
    perform evervec.write_leases(array[given_token], array[job]);
    select j.* into held from evervec.jobs as j
    where j.job_id = job and j.token = given_token and j.status = 'processing' for update;
    if not found then  -- it came before, and its answer was lost; or the lease was
        return exists (
            select 1 from evervec.jobs as j
            where j.job_id = job and j.token = given_token and j.finished_seq >= j.claimed_seq);
    end if;
    update evervec.jobs as j
    set status = case when j.seq > j.claimed_seq then 'pending' else 'done' end,
        attempts = case when j.seq > j.claimed_seq then 0 else j.attempts end,
        box = case when j.seq > j.claimed_seq then j.box end,
        finished_seq = j.claimed_seq, completed_at = now, lease_expires_at = null, error = null,
        crashes = 0
    where j.job_id = job;
    insert into evervec.attempts
        (record, tenant, version, attempt, seq, started_at, finished_at, outcome, worker)
    values (held.record, held.tenant, held.version, held.attempts, held.claimed_seq,
            held.started_at, now, 'done', held.worker);
    return true;
end
$$;

-- With `retry_in` seconds it waits for another try, if one is left; without, it is a dead letter.
-- Where it went, or null when the token was no longer good.
create or replace function evervec.fail_embedding_queue_item(
    job bigint, given_token text, reason text, retry_in double precision default null
) returns text
language plpgsql
as $$
declare
    now double precision := evervec.now_seconds();
    held evervec.jobs;
    ended text;
begin
    perform evervec.write_leases(array[given_token], array[job]);
    select j.* into held from evervec.jobs as j
    where j.job_id = job and j.token = given_token and j.status = 'processing' for update;
    if not found then
        return null;
    end if;
    ended := case
        when held.seq > held.claimed_seq then 'pending'  -- a newer version starts anew
        when retry_in is null or held.attempts >= held.max_attempts then 'failed'
        else 'pending' end;
    update evervec.jobs as j
    set status = ended, error = reason, token = null, lease_expires_at = null,
        attempts = case when j.seq > j.claimed_seq then 0 else j.attempts end,
        scheduled_for = case when j.seq > j.claimed_seq then now
                             else now + coalesce(retry_in, 0) end,
        completed_at = case when ended = 'failed' then now end
    where j.job_id = job;
    insert into evervec.attempts
        (record, tenant, version, attempt, seq, started_at, finished_at, outcome, worker, error)
    values (held.record, held.tenant, held.version, held.attempts, held.claimed_seq,
            held.started_at, now, case when ended = 'failed' then 'failed' else 'retry' end,
            held.worker, reason);
    return ended;
end
$$;

create or replace function evervec.release_embedding_queue_item(job bigint, given_token text)
returns boolean
language sql
as $$
    select evervec.write_leases(array[given_token], array[job]);
    with given_back as (
        update evervec.jobs as j
        set status = 'pending', token = null, lease_expires_at = null,
            attempts = case when j.seq > j.claimed_seq then 0 else greatest(j.attempts - 1, 0) end
        where j.job_id = job and j.token = given_token and j.status = 'processing'
        returning 1)
    select exists (select 1 from given_back)
$$;

create or replace function evervec.renew_embedding_queue_item(
    job bigint, given_token text, lease_seconds double precision
) returns boolean
language sql
as $$
    select evervec.write_leases(array[given_token], array[job]);
    with renewed as (
        update evervec.jobs as j
        set lease_expires_at = evervec.now_seconds() + lease_seconds
        where j.job_id = job and j.token = given_token and j.status = 'processing'
        returning 1),
    sooner as (  -- a lease may be renewed for less than it had
        update evervec.claims as c set expires_at = evervec.now_seconds() + lease_seconds
        where c.token = given_token and c.expires_at > evervec.now_seconds() + lease_seconds)
    select exists (select 1 from renewed)
$$;
