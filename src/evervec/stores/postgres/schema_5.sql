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

-- A row of an attached table whose key or tenant cannot be a record's is set aside: an example of
-- such a row's id (null: none is known), and how many were set aside since the first.
alter table evervec.attached add column unfit text;
alter table evervec.attached add column times_unfit bigint not null default 0;

-- Tenants take turns: jobs that can be claimed stand by tenant, and by priority within a tenant
-- (`rank`: the lowest first). Those that are not due yet stand apart (`later`), and cost nothing
-- until a claim finds that their time has come.
lock table evervec.jobs, evervec.ready in access exclusive mode;

create table evervec.tenants (      -- what is set for single tenants; null: as for all
    tenant text collate "C" primary key,
    weight integer,                 -- of its turn, beside 1 for others
    kinds bigint,
    records bigint,
    bytes bigint,
    chunks bigint,
    tokens bigint,                  -- a day
    money double precision          -- a day
);

create table evervec.holds (        -- whose jobs wait: what they may use in a day is used up
    tenant text collate "C" primary key,
    until double precision not null
);

alter table evervec.ready replica identity default;
drop index evervec.ready_by_tenant, evervec.ready_order;
alter table evervec.ready add column later boolean not null default false;
alter table evervec.ready add column rank bigint not null default 0;
update evervec.ready set rank = -priority::bigint, later = scheduled_for > evervec.now_seconds();
alter table evervec.ready drop column priority;
alter table evervec.ready alter column rank drop default, alter column later drop default;
create unique index ready_order on evervec.ready (later, tenant, rank, scheduled_for, job_id);
create index ready_later on evervec.ready (scheduled_for) where later;
alter table evervec.ready replica identity using index ready_order;

create or replace function evervec.follow_new_jobs() returns trigger
language plpgsql
as $$
declare
    now double precision := evervec.now_seconds();
begin
    insert into evervec.ready (job_id, version, scheduled_for, rank, crashes, tenant, op, later)
    select job_id, version, scheduled_for, -priority::bigint, crashes, tenant, op,
           scheduled_for > now
    from new_jobs where status = 'pending';
    return null;
end
$$;

create or replace function evervec.follow_changed_job() returns trigger
language plpgsql
set enable_seqscan = off
as $$
declare
    is_later boolean := new.scheduled_for > evervec.now_seconds();
begin
    if old.status <> 'pending' then
        insert into evervec.ready (job_id, version, scheduled_for, rank, crashes, tenant, op, later)
        values (new.job_id, new.version, new.scheduled_for, -new.priority::bigint, new.crashes, new.tenant,
                new.op, is_later)
        on conflict do nothing;
    else  -- where it stands: one that is claimed stands nowhere
        perform 1 from evervec.ready as q
        where q.later in (false, true) and (q.tenant, q.rank, q.scheduled_for, q.job_id)
            = (old.tenant, -old.priority::bigint, old.scheduled_for, old.job_id)
        for update;
        if not found then
            return null;
        end if;
        if (new.priority, new.scheduled_for, new.crashes, new.op)
            <> (old.priority, old.scheduled_for, old.crashes, old.op) then
            update evervec.ready as q
            set rank = -new.priority::bigint, scheduled_for = new.scheduled_for, crashes = new.crashes,
                op = new.op, later = is_later
            where q.later in (false, true) and (q.tenant, q.rank, q.scheduled_for, q.job_id)
                = (old.tenant, -old.priority::bigint, old.scheduled_for, old.job_id);
        end if;
    end if;
    return null;
end
$$;

create or replace function evervec.follow_dropped_jobs() returns trigger
language plpgsql
set enable_seqscan = off
as $$
begin
    delete from evervec.ready as q using old_jobs as o
    where o.status = 'pending' and q.later in (false, true)
        and (q.tenant, q.rank, q.scheduled_for, q.job_id)
        = (o.tenant, -o.priority::bigint, o.scheduled_for, o.job_id);
    return null;
end
$$;

drop function evervec.next_jobs;

drop function evervec.shared_jobs;

-- The first due jobs of a tenant behind a place, locked for whoever asks. `barred`: versions whose
-- jobs are left for others. Plans are made as `next_jobs` says.
create function evervec.first_jobs(
    wanted integer,
    at double precision,
    owner text,
    barred bigint[],
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
            and (barred is null or q.version <> all (barred)
                 and exists (select 1 from evervec.versions as v where v.version = q.version))
        order by q.rank, q.scheduled_for, q.job_id
        limit wanted for update of q skip locked) as f;
end
$$;

-- Due jobs, locked for whoever asks, with their places among those that can be claimed. Tenants
-- take turns, in the order of their names, from the one behind `turn` on; each gets a share by its
-- weight, and what one does not need goes to the others. Within a tenant the highest priority comes
-- first, then the time, then the arrival. `suspect`: the worker of one of them died of something.
-- `next_turn`: what to begin behind next time. `tenants`, `ranks`, `times` and `firsts`: by tenant,
-- the first that was found.
--
-- `known` says where a caller last found the first job of a tenant. What lies before it in the
-- index is dead, and while some transaction keeps it from being cleared away a claim that began at
-- the front would get slower with every job that is done.
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
-- in the order of the index, and no further than the limit; no other plan is open to it, and to
-- make it anew took longer than to claim a few jobs
set enable_sort = off
set enable_bitmapscan = off
set enable_seqscan = off
set jit = off
set plan_cache_mode = force_generic_plan
as $$
declare
    promoted_at_once constant integer := 10000;
    last_name constant text := repeat(chr(1114111), 65);  -- longer than a name may be
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

    -- whose turn it is: by steps from tenant to tenant, to each by the index
    while cardinality(owners) < wanted loop
        stop := null;
        if known <> '{}' or skipped <> '{}' then  -- what lies before their first is not walked
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
            if exists (  -- one that is more urgent may have come before it
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
                asked, at, owners[i], barred, most_crashes,
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

-- A claim gives access to what a job is about: for a boxed record that is in its box.
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
    -- whose turn it is goes on within a session, and begins anywhere
    turn text := coalesce(nullif(current_setting('evervec.turn', true), ''), md5(made));
    next_turn text;
begin
    select d.places, d.next_turn into due, next_turn
    from evervec.next_jobs(max_items, now, null, 0, turn => turn) as d;
    if due = '{}' then  -- a suspect comes alone
        select d.places, d.next_turn into due, next_turn
        from evervec.next_jobs(1, now, turn => turn) as d;
    end if;
    perform set_config('evervec.turn', next_turn, false);
    return query
        select t.job_id, made, t.tenant, t.kind, t.id, t.op, t.seq,
               case when j.box is null then r.title else j.box::json ->> 'title' end,
               case when j.box is null then r.text else j.box::json ->> 'text' end,
               case when j.box is null then r.metadata else j.box::json ->> 'metadata' end,
               t.attempts + 1, t.max_attempts, now + lease_seconds
        from evervec.take_jobs(made, worker_name, now, now + lease_seconds, due) as t
        join evervec.records as r on r.record = t.record
        join evervec.jobs as j on j.job_id = t.job_id
        order by t.priority desc, t.scheduled_for, t.job_id;
end
$$;

-- A boxed record, or a row that a loader or an attached table gives, would be lost with its job:
-- only a worker of evervec, which lets the record appear, may finish those.
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
    if held.op = 'open' or held.op = 'load' and exists (
        select 1 from evervec.versions as v
        where v.version = held.version and (
            v.app = 1 or exists (select 1 from evervec.attached as a where a.kind = v.kind))) then
        raise exception 'job % has a record that is not read yet (op %), which would be lost', job,
            held.op
        using errcode = 'object_not_in_prerequisite_state',
            hint = 'Give it back with evervec.release_embedding_queue_item: a worker of evervec '
                'embeds it and lets it appear.';
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
-- What overtook the claim waits at its own time. Where it went, or null when the token was no longer
-- good.
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
        scheduled_for = case when j.seq > j.claimed_seq then j.scheduled_for
                             else now + case when ended = 'failed' then 0 else retry_in end end,
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

-- A token is a key of a short life: the key that it was made from, and as a JSON list the kinds that
-- it is for (null: all).
alter table evervec.keys add column parent text;
alter table evervec.keys add column kinds text;
create index keys_of_parent on evervec.keys (parent, created_at) where parent is not null;

-- The audit log: who did what, from where, and what became of it.
create table evervec.audit (
    entry bigint generated always as identity primary key,
    noted_at double precision not null,
    key_id text,                     -- null: nobody with a key
    agent text not null,
    tenant text not null,            -- *: all
    action text not null,
    target text not null,
    outcome text not null,
    request_id text,
    client text                      -- an address
);

create index audit_at on evervec.audit (noted_at);

-- A number that is another one after any change of versions: what is known of them is read again.
-- Not of the times at which they were last written to.
insert into evervec.meta (key, value) values ('versions', 0);

create function evervec.note_versions() returns trigger
language plpgsql
as $$
begin
    -- at random: a sequence repeats itself after a restore
    update evervec.meta set value = (random() * 9e15)::bigint where key = 'versions';
    return null;
end
$$;

create trigger note_added_or_dropped after insert or delete on evervec.versions
for each row execute function evervec.note_versions();

create trigger note_changed
after update of state, name, provider, model, dimensions, chunker, app, cut_since
on evervec.versions
for each row execute function evervec.note_versions();

-- What tenants have, counted by triggers in the transaction of each change. A row for each change
-- that two transactions never wait for each other with; they are added up from time to time.
create table evervec.usage (
    tenant text collate "C" not null,
    kind text collate "C" not null,
    records bigint not null,        -- that are not deleted
    bytes bigint not null,          -- of their titles, texts, metadata and typed data
    primary key (tenant, kind)
) with (fillfactor = 50);

create table evervec.chunks (
    tenant text collate "C" not null,
    version bigint not null,
    chunks bigint not null,         -- in the ledger: each takes 24 bytes of an entry
    primary key (tenant, version)
) with (fillfactor = 50);

create table evervec.usage_changes (
    tenant text collate "C" not null,
    kind text collate "C",
    version bigint,
    records bigint not null default 0,
    bytes bigint not null default 0,
    chunks bigint not null default 0
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

create index usage_changes_tenant on evervec.usage_changes (tenant);
alter table evervec.usage_changes replica identity full;  -- as for changes: no key is kept for it

lock table evervec.records, evervec.ledger in share row exclusive mode;

insert into evervec.usage (tenant, kind, records, bytes)
select r.tenant, r.kind, count(*), sum(
        octet_length(r.text) + coalesce(octet_length(r.title), 0)
        + coalesce(octet_length(r.data), 0)
        + case when r.metadata = '{}' then 0 else octet_length(r.metadata) end)
from evervec.records as r where r.state <> 'deleted' group by r.tenant, r.kind;

insert into evervec.chunks (tenant, version, chunks)
select r.tenant, l.version, sum(octet_length(l.chunks) / 24)
from evervec.ledger as l join evervec.records as r on r.record = l.record
group by r.tenant, l.version;

create function evervec.count_records() returns trigger
language plpgsql
as $$
begin
    if tg_op = 'INSERT' then
        insert into evervec.usage_changes (tenant, kind, records, bytes)
        select n.tenant, n.kind, count(*), sum(
        octet_length(n.text) + coalesce(octet_length(n.title), 0)
        + coalesce(octet_length(n.data), 0)
        + case when n.metadata = '{}' then 0 else octet_length(n.metadata) end)
        from new_rows as n where n.state <> 'deleted' group by n.tenant, n.kind;
    else
        insert into evervec.usage_changes (tenant, kind, records, bytes)
        select c.tenant, c.kind, sum(c.count), sum(c.count * c.size)
        from (
            select n.tenant, n.kind, 1 as count,
        octet_length(n.text) + coalesce(octet_length(n.title), 0)
        + coalesce(octet_length(n.data), 0)
        + case when n.metadata = '{}' then 0 else octet_length(n.metadata) end as size
            from new_rows as n where n.state <> 'deleted'
            union all
            select o.tenant, o.kind, -1,
        octet_length(o.text) + coalesce(octet_length(o.title), 0)
        + coalesce(octet_length(o.data), 0)
        + case when o.metadata = '{}' then 0 else octet_length(o.metadata) end
            from old_rows as o where o.state <> 'deleted') as c
        group by c.tenant, c.kind
        having sum(c.count) <> 0 or sum(c.count * c.size) <> 0;
    end if;
    return null;
end
$$;

create function evervec.count_dropped_records() returns trigger
language plpgsql
as $$
begin
    insert into evervec.usage_changes (tenant, kind, records, bytes)
    select o.tenant, o.kind, -count(*), -sum(
        octet_length(o.text) + coalesce(octet_length(o.title), 0)
        + coalesce(octet_length(o.data), 0)
        + case when o.metadata = '{}' then 0 else octet_length(o.metadata) end)
    from old_rows as o where o.state <> 'deleted' group by o.tenant, o.kind;
    return null;
end
$$;

create trigger count_added after insert on evervec.records
referencing new table as new_rows
for each statement execute function evervec.count_records();

create trigger count_changed after update on evervec.records
referencing old table as old_rows new table as new_rows
for each statement execute function evervec.count_records();

create trigger count_dropped after delete on evervec.records
referencing old table as old_rows
for each statement execute function evervec.count_dropped_records();

create function evervec.count_added_chunks() returns trigger
language plpgsql
set enable_seqscan = off
as $$
begin
    insert into evervec.usage_changes (tenant, version, chunks)
    select r.tenant, n.version, sum(octet_length(n.chunks) / 24)
    from new_rows as n join evervec.records as r on r.record = n.record
    group by r.tenant, n.version;
    return null;
end
$$;

create function evervec.count_changed_chunks() returns trigger
language plpgsql
set enable_seqscan = off
as $$
begin
    insert into evervec.usage_changes (tenant, version, chunks)
    select r.tenant, c.version, sum(c.chunks)
    from (
        select n.record, n.version, octet_length(n.chunks) / 24 as chunks from new_rows as n
        union all
        select o.record, o.version, -(octet_length(o.chunks) / 24) from old_rows as o) as c
    join evervec.records as r on r.record = c.record
    group by r.tenant, c.version
    having sum(c.chunks) <> 0;
    return null;
end
$$;

create function evervec.count_dropped_chunks() returns trigger
language plpgsql
set enable_seqscan = off
as $$
begin
    insert into evervec.usage_changes (tenant, version, chunks)
    select r.tenant, o.version, -sum(octet_length(o.chunks) / 24)
    from old_rows as o join evervec.records as r on r.record = o.record
    group by r.tenant, o.version;
    return null;
end
$$;

create trigger count_added after insert on evervec.ledger
referencing new table as new_rows
for each statement execute function evervec.count_added_chunks();

create trigger count_changed after update on evervec.ledger
referencing old table as old_rows new table as new_rows
for each statement execute function evervec.count_changed_chunks();

create trigger count_dropped after delete on evervec.ledger
referencing old table as old_rows
for each statement execute function evervec.count_dropped_chunks();
