-- State that processes share: notes, locks, spend, cached vectors, workers.

-- name: add_cached
-- the table has no unique index
insert into evervec_cache (model, hash, vector)
select n.model, n.hash, n.vector
from rows($1 model text, hash text, vector bytea) as n
where not exists (
    select 1 from evervec_cache as c where c.model = n.model and c.hash = n.hash)
