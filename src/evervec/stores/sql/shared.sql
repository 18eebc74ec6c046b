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
select worker, version, started_at, seen_at, held, done from evervec_workers order by worker
