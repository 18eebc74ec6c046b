-- History: counts over time.
-- For all stores; `named.py` says in which form.

-- name: add_buckets
insert into evervec_history as h
    (tenant, step, began, kind, lane, done, failed, retried, deleted, embedded, reused,
     tokens, money, fresh_0, fresh_1, fresh_2, fresh_3, fresh_4, fresh_5, fresh_6, fresh_7, fresh_8, fresh_9, fresh_10, fresh_11,
     fresh_12, fresh_13)
select * from rows($1 tenant text, step integer, began bigint, kind text, lane integer,
                   done bigint, failed bigint, retried bigint, deleted bigint, embedded bigint,
                   reused bigint, tokens bigint, money double, fresh_0 bigint, fresh_1 bigint,
                   fresh_2 bigint, fresh_3 bigint, fresh_4 bigint, fresh_5 bigint,
                   fresh_6 bigint, fresh_7 bigint, fresh_8 bigint, fresh_9 bigint,
                   fresh_10 bigint, fresh_11 bigint, fresh_12 bigint,
                   fresh_13 bigint) as n where true
on conflict (tenant, step, began, kind, lane) do update set
    done = h.done + excluded.done, failed = h.failed + excluded.failed,
    retried = h.retried + excluded.retried, deleted = h.deleted + excluded.deleted,
    embedded = h.embedded + excluded.embedded, reused = h.reused + excluded.reused,
    tokens = h.tokens + excluded.tokens, money = h.money + excluded.money,
    fresh_0 = h.fresh_0 + excluded.fresh_0, fresh_1 = h.fresh_1 + excluded.fresh_1,
    fresh_2 = h.fresh_2 + excluded.fresh_2, fresh_3 = h.fresh_3 + excluded.fresh_3,
    fresh_4 = h.fresh_4 + excluded.fresh_4, fresh_5 = h.fresh_5 + excluded.fresh_5,
    fresh_6 = h.fresh_6 + excluded.fresh_6, fresh_7 = h.fresh_7 + excluded.fresh_7,
    fresh_8 = h.fresh_8 + excluded.fresh_8, fresh_9 = h.fresh_9 + excluded.fresh_9,
    fresh_10 = h.fresh_10 + excluded.fresh_10, fresh_11 = h.fresh_11 + excluded.fresh_11,
    fresh_12 = h.fresh_12 + excluded.fresh_12, fresh_13 = h.fresh_13 + excluded.fresh_13

-- name: buckets
-- the depth is that of all kinds together, so a kind has none
select began, sum(done) as done, sum(failed) as failed, sum(retried) as retried,
       sum(deleted) as deleted, sum(embedded) as embedded, sum(reused) as reused,
       sum(tokens) as tokens, sum(money) as money, sum(fresh_0) as fresh_0,
       sum(fresh_1) as fresh_1, sum(fresh_2) as fresh_2, sum(fresh_3) as fresh_3,
       sum(fresh_4) as fresh_4, sum(fresh_5) as fresh_5, sum(fresh_6) as fresh_6,
       sum(fresh_7) as fresh_7, sum(fresh_8) as fresh_8, sum(fresh_9) as fresh_9,
       sum(fresh_10) as fresh_10, sum(fresh_11) as fresh_11, sum(fresh_12) as fresh_12,
       sum(fresh_13) as fresh_13,
       max(case when $5::text is null then depth end) as depth
from evervec_history
where tenant = $1 and step = $2 and began >= $3 and began < $4 and ($5::text is null or kind = $5)
group by began
order by began

-- name: bucket_kinds
select distinct kind from evervec_history where tenant = $1 and step = $2 and began = $3

-- name: queue_depths
-- open jobs by tenant, of at most a million
select tenant, count(*) as depth
from (select tenant from (select tenant from evervec_jobs where status = 'pending'
                          limit 1000000) as waiting
      union all
      select tenant from evervec_jobs where status = 'processing') as open
group by tenant

-- name: note_depths
insert into evervec_history as h (tenant, step, began, kind, lane, depth)
select * from rows($1 tenant text, step integer, began bigint, kind text, lane integer,
                   depth bigint) as n where true
on conflict (tenant, step, began, kind, lane) do update
    set depth = case when h.depth > excluded.depth then h.depth else excluded.depth end

-- name: purge_buckets
-- those of the oldest moment
delete from evervec_history
where step = $1 and began = (select min(began) from evervec_history where step = $1 and began < $2)

-- name: add_failures
insert into evervec_failures as f
    (tenant, fingerprint, first_seen, last_seen, failed, retried, job_id, kind, model, message,
     example)
select * from rows($1 tenant text, fingerprint text, first_seen double, last_seen double,
                   failed bigint, retried bigint, job_id bigint, kind text, model text,
                   message text, example text) as n where true
on conflict (fingerprint, tenant) do update set
    last_seen = excluded.last_seen, failed = f.failed + excluded.failed,
    retried = f.retried + excluded.retried, job_id = excluded.job_id, example = excluded.example

-- name: add_failure_times
insert into evervec_failure_times as f (fingerprint, tenant, began, times)
select * from rows($1 fingerprint text, tenant text, began bigint, times bigint) as n where true
on conflict (fingerprint, tenant, began) do update set times = f.times + excluded.times

-- name: surplus_failures
-- those beyond the latest
select fingerprint from evervec_failures where tenant = $1
order by last_seen desc, fingerprint
limit 1000 offset $2

-- name: drop_failures
delete from evervec_failures where tenant = $1 and fingerprint in texts($2)

-- name: drop_failure_times
delete from evervec_failure_times where tenant = $1 and fingerprint in texts($2)

-- name: failures
select fingerprint, tenant, kind, model, message, example, job_id, first_seen, last_seen, failed,
       retried, dismissed_at
from evervec_failures
where tenant = $1 and ($2::text is null or kind = $2)
    and ($3::boolean or dismissed_at is null or dismissed_at < last_seen)
order by last_seen desc, fingerprint
limit $4

-- name: latest_failures
-- of all tenants; the latest thousand are looked at
select fingerprint, tenant, kind, model, message, example, job_id, first_seen, last_seen, failed,
       retried, dismissed_at
from (select * from evervec_failures order by last_seen desc limit 1000) as f
where ($1::text is null or kind = $1)
    and ($2::boolean or dismissed_at is null or dismissed_at < last_seen)
order by last_seen desc, fingerprint
limit $3

-- name: failure_times
select fingerprint, tenant, began, times from evervec_failure_times
where fingerprint in texts($1) and began >= $2

-- name: count_alike
select count(*)
from (select 1 from evervec_jobs
      where status = 'failed' and fingerprint = $1 and tenant = $2 limit $3) as alike

-- name: dismiss_failures
update evervec_failures set dismissed_at = $1
where fingerprint = $2 and ($3::text is null or tenant = $3)

-- name: purge_failures
delete from evervec_failures where last_seen < $1

-- name: purge_failure_times
delete from evervec_failure_times where began < $1
