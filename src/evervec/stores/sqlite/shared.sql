-- State that processes share: notes, locks, spend, cached vectors, workers.

-- name: drop_given
-- SQLite has no `delete … using`
delete from evervec_given
where record = ?1 and seq <= ?2
    and not exists (select 1 from evervec_jobs as j
                    where j.record = evervec_given.record and j.status <> 'done')
