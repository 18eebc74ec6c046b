-- State that processes share: notes, locks, spend, cached vectors, workers.

-- name: add_spend
-- the table has no unique index
merge into evervec_spend as s
using (
    select $1::varchar as day, $2::varchar as tenant, $3::varchar as kind, $4::varchar as model,
           $5::double as calls, $6::bigint as tokens, $7::double as money) as n
on s.day = n.day and s.tenant = n.tenant and s.kind = n.kind and s.model = n.model
when matched then update
    set calls = s.calls + n.calls, tokens = s.tokens + n.tokens, money = s.money + n.money
when not matched then insert values (n.day, n.tenant, n.kind, n.model, n.calls, n.tokens, n.money)

-- name: add_cached
-- the table has no unique index
insert into evervec_cache (model, hash, vector)
select n.model, n.hash, n.vector
from rows($1 model text, hash text, vector bytea) as n
where not exists (
    select 1 from evervec_cache as c where c.model = n.model and c.hash = n.hash)

-- name: beat
-- the table has no unique index
merge into evervec_workers as w
using (
    select $1::varchar as worker, $2::varchar as version, $3::double as now,
           $4::integer as held, $5::bigint as done) as n
on w.worker = n.worker
when matched then update
    set version = n.version, seen_at = n.now, held = n.held, done = n.done
when not matched then insert values (n.worker, n.version, n.now, n.now, n.held, n.done)
