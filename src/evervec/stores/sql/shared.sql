-- What processes share: notes, locks, spend, cached vectors, workers.
-- For all stores; `named.py` says in which form.

-- name: forget_holds
delete from evervec_holds where until <= $1

-- name: forget_locks
delete from evervec_locks where expires_at < $1

-- name: drop_note
delete from evervec_notes where name = $1 and revision = $2

-- name: spend
select day, tenant, kind, model, calls, tokens, money from evervec_spend
where day >= $1 and ($2::text is null or tenant = $2)
order by day desc, tenant, kind, model

-- name: purge_spend
delete from evervec_spend where day < $1

-- name: trim_cache
delete from evervec_cache where number <= (select max(number) from evervec_cache) - $1

-- name: forget_workers
delete from evervec_workers where seen_at < $1

-- name: leave
delete from evervec_workers where worker = $1

-- name: workers
select worker, version, started_at, seen_at, held, done, paused from evervec_workers
order by worker

-- name: worker_paused
select paused from evervec_workers where worker = $1

-- name: pause_worker
update evervec_workers set paused = $1 where worker = $2

-- name: cached
select hash, vector from evervec_cache where model = $1 and hash in texts($2)

-- name: beat
insert into evervec_workers (worker, version, started_at, seen_at, held, done)
values ($1, $2, $3, $3, $4, $5)
on conflict (worker) do update
    set version = excluded.version, seen_at = excluded.seen_at, held = excluded.held,
        done = excluded.done

-- name: add_spend
insert into evervec_spend as s (day, tenant, kind, model, calls, tokens, money)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict (day, tenant, kind, model) do update set
    calls = s.calls + excluded.calls, tokens = s.tokens + excluded.tokens,
    money = s.money + excluded.money

-- name: add_cached
insert into evervec_cache (model, hash, vector)
select * from rows($1 model text, hash text, vector bytea) as n where true
on conflict do nothing

-- name: put_given
insert into evervec_given (record, seq, model, vectors)
select * from rows($1 record bigint, seq bigint, model text, vectors bytea) as n

-- name: replace_given
delete from evervec_given where record in list($1)

-- name: given
select record, seq, vectors from evervec_given where model = $1 and record in list($2)

-- name: drop_given
-- not while a job of any version may need them
delete from evervec_given as g
using rows($1 record bigint, seq bigint) as n
where g.record = n.record and g.seq <= n.seq
    and not exists (select 1 from evervec_jobs as j
                    where j.record = g.record and j.status <> 'done')

-- name: all_given
select record, seq from evervec_given where record > $1 order by record limit $2
