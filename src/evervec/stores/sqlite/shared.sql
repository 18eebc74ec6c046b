-- What processes share: notes, locks, spend, cached vectors, workers.

-- name: add_spend
insert into evervec_spend (day, tenant, kind, model, calls, tokens, money)
values (?, ?, ?, ?, ?, ?, ?)
on conflict do update set
    calls = calls + excluded.calls, tokens = tokens + excluded.tokens,
    money = money + excluded.money

-- name: cached
select hash, vector from evervec_cache
where model = ? and hash in (select value from json_each(?))

-- name: add_cached
insert into evervec_cache (model, hash, vector) values (?, ?, ?) on conflict do nothing

-- name: beat
insert into evervec_workers (worker, version, started_at, seen_at, held, done)
values (?1, ?2, ?3, ?3, ?4, ?5)
on conflict (worker) do update
    set version = excluded.version, seen_at = excluded.seen_at, held = excluded.held,
        done = excluded.done
