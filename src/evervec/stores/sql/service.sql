-- The service: keys, tokens, repeated requests, audit log, tenants' limits.
-- For all stores; `named.py` says in which form.

-- name: limits
select weight, kinds, records, bytes, chunks, tokens, money from evervec_tenants where tenant = $1

-- name: limited_tenants
select tenant from evervec_tenants order by tenant

-- name: drop_limits
delete from evervec_tenants where tenant = $1

-- name: set_limits
insert into evervec_tenants (tenant, weight, kinds, records, bytes, chunks, tokens, money)
values ($1, $2, $3, $4, $5, $6, $7, $8)

-- name: spent
-- tokens and money of one day
select coalesce(sum(tokens), 0), coalesce(sum(money), 0) from evervec_spend
where tenant = $1 and day = $2

-- name: hold
select until from evervec_holds where tenant = $1 and until > $2

-- name: add_hold
insert into evervec_holds (tenant, until) values ($1, $2)

-- name: drop_hold
delete from evervec_holds where tenant = $1

-- name: key_columns
id, hash, tenant, agent, role, created_at, expires_at, last_used_at, revoked_at, parent, kinds

-- name: add_key
insert into evervec_keys
    (id, hash, tenant, agent, role, created_at, expires_at, last_used_at, revoked_at, parent,
     kinds)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: any_keys
select exists (select 1 from evervec_keys)

-- name: revoke_key
update evervec_keys set revoked_at = $1 where id = $2 and revoked_at is null

-- name: count_tokens
select count(*) from evervec_keys where parent = $1 and created_at > $2

-- name: forget_tokens
delete from evervec_keys where parent is not null and expires_at < $1

-- name: add_audit
insert into evervec_audit
    (noted_at, key_id, agent, tenant, action, target, outcome, request_id, client)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: forget_audit
delete from evervec_audit where noted_at < $1

-- name: asked
select fingerprint, answer from evervec_asked where tenant = $1 and name = $2

-- name: count_asked
select count(*) from (select 1 from evervec_asked where tenant = $1 limit $2) as kept

-- name: answer
update evervec_asked set answer = $1 where tenant = $2 and name = $3

-- name: forget_asked
delete from evervec_asked where asked_at < $1
