-- Embedding versions.

-- name: describe_version
update evervec_versions
set cut_since = case when chunker in ('', $1) then cut_since else $2 end, chunker = $1, app = $3
where version = $4

-- name: take_lock
merge into evervec_locks as l
using (
    select $1::varchar as name, $2::varchar as holder, $3::varchar as token,
           $4::double as expires_at) as n
on l.name = n.name
when matched and (l.expires_at < $5 or l.holder = n.holder)
    then update set holder = n.holder, token = n.token, expires_at = n.expires_at
when not matched then insert values (n.name, n.holder, n.token, n.expires_at)
returning token

-- name: held_version
-- whether a worker holds a job of a version
select exists (
    select 1 from evervec_jobs
    where version = $1 and status = 'processing' and lease_expires_at > $2)
