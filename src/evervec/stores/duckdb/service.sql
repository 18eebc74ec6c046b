-- The service: keys, tokens, repeated requests, audit log, tenants' limits.

-- name: kinds
-- a scan: there is no index for it
-- the kinds of a tenant's records
select distinct kind from evervec_records where tenant = $1 order by kind
