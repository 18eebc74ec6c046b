-- History: counts over time.

-- name: queue_depths
-- the counts are kept
select tenant, sum(open) as depth from evervec.job_counts
where tenant <> '' and open > 0
group by tenant

-- name: count_alike
-- failed jobs are found by the partial index on `fingerprint`
select count(*)
from (select 1 from evervec.jobs
      where failed_at is not null and fingerprint = $1 and tenant = $2 limit $3) as alike
