-- Embedding versions.

-- name: open_transactions
-- open transactions of this database, of any user
select l.virtualtransaction
from pg_locks as l
join pg_stat_activity as a on a.pid = l.pid
join pg_database as d on d.oid = a.datid and d.datname = current_database()
where l.locktype = 'virtualxid' and l.virtualxid = l.virtualtransaction
    and l.pid <> pg_backend_pid() and coalesce(a.backend_type, 'client backend') = 'client backend'

-- name: prepared_transactions
select 'prepared ' || transaction::text
from pg_prepared_xacts
where database = current_database()

-- name: halt_finishes
lock table evervec.ledger in share mode
