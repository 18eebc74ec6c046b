-- State that processes share: notes, locks, spend, cached vectors, workers.

-- name: add_spend
insert into evervec.spend as s (day, tenant, kind, model, calls, tokens, money)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict (day, tenant, kind, model) do update set
    calls = s.calls + excluded.calls, tokens = s.tokens + excluded.tokens,
    money = s.money + excluded.money

-- name: cached
select hash, vector from evervec.cache where model = $1 and hash = any ($2)

-- name: add_cached
insert into evervec.cache (model, hash, vector)
select * from unnest($1::text[], $2::text[], $3::bytea[])
on conflict do nothing

-- name: beat
insert into evervec.workers (worker, version, started_at, seen_at, held, done)
values ($1, $2, $3, $3, $4, $5)
on conflict (worker) do update
    set version = excluded.version, seen_at = excluded.seen_at, held = excluded.held,
        done = excluded.done
