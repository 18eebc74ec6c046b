-- Embedding versions.

-- name: describe_version
update evervec_versions
set cut_since = iif(chunker in ('', ?1), cut_since, ?2), chunker = ?1, app = ?3
where version = ?4

-- name: take_lock
insert into evervec_locks (name, holder, token, expires_at) values (?1, ?2, ?3, ?4)
on conflict (name) do update
    set holder = excluded.holder, token = excluded.token, expires_at = excluded.expires_at
    where expires_at < ?5 or holder = excluded.holder
returning token

-- name: held_version
-- whether a worker holds a job of a version
select exists (
    select 1 from evervec_jobs
    where version = ?1 and status = 'processing' and lease_expires_at > ?2)
