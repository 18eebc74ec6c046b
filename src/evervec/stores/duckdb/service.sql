-- The service: keys, tokens, repeated requests, audit log, tenants' limits.

-- name: kinds
-- a scan: there is no index for it
-- the kinds of a tenant's records
select distinct kind from evervec_records where tenant = $1 order by kind

-- name: add_asked
-- the table has no unique index
insert into evervec_asked (tenant, name, fingerprint, asked_at)
select $1, $2, $3, $4
where not exists (select 1 from evervec_asked where tenant = $1 and name = $2)
