-- Embedding versions.

-- name: take_lock
-- the table has no unique index
merge into evervec_locks as l
using (
    select $1::varchar as name, $2::varchar as holder, $3::varchar as token,
           $4::double as expires_at) as n
on l.name = n.name
when matched and (l.expires_at < $5 or l.holder = n.holder)
    then update set holder = n.holder, token = n.token, expires_at = n.expires_at
when not matched then insert values (n.name, n.holder, n.token, n.expires_at)
returning token
