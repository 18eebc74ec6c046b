-- Change streams that are followed. For all stores; `named.py` says in which form.

-- name: follow_stream
insert into evervec_streams (tenant, name, kind, definition) values ($1, $2, $3, $4)
on conflict (tenant, name) do update
    set kind = excluded.kind, definition = excluded.definition

-- name: stream
select tenant, name, kind, definition from evervec_streams where tenant = $1 and name = $2

-- name: forget_stream
delete from evervec_streams where tenant = $1 and name = $2

-- name: forget_stream_parts
delete from evervec_stream_parts where tenant = $1 and stream = $2

-- name: forget_failed
delete from evervec_failed_messages where tenant = $1 and stream = $2

-- name: streams
select s.tenant, s.name, s.kind,
       (select count(*) from evervec_failed_messages as f
        where f.tenant = s.tenant and f.stream = s.name) as failed
from evervec_streams as s
where $1::text is null or s.tenant = $1
order by s.tenant, s.name

-- name: stream_parts
select tenant, stream, part, position, lag, sent_at, seen_at
from evervec_stream_parts
where $1::text is null or tenant = $1
order by tenant, stream, part

-- name: report_stream
-- a follower that lost a part to another may report it last: the lag is that of the furthest one
insert into evervec_stream_parts as p (tenant, stream, part, position, lag, sent_at, seen_at)
values ($1, $2, $3, $4, $5, $6, $7)
on conflict (tenant, stream, part) do update
    set position = excluded.position, lag = excluded.lag, sent_at = excluded.sent_at,
        seen_at = excluded.seen_at
    where excluded.position >= p.position or excluded.seen_at > p.seen_at + 10

-- name: set_aside
insert into evervec_failed_messages
    (tenant, stream, part, position, size, sent_at, failed_at, reason, headers, key, content)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
on conflict (tenant, stream, part, position) do update
    set reason = excluded.reason, failed_at = excluded.failed_at, size = excluded.size,
        sent_at = excluded.sent_at, headers = excluded.headers, key = excluded.key,
        content = excluded.content

-- name: failed_messages
select stream, part, position, reason, key, content, size, headers, sent_at, failed_at, message
from evervec_failed_messages
where tenant = $1 and ($2::text is null or stream = $2) and message > $3
order by message
limit $4

-- name: count_failed_messages
select count(*) from (
    select 1 from evervec_failed_messages where tenant = $1 and stream = $2 limit $3) as found

-- name: any_failed_message
select 1 from evervec_failed_messages limit 1

-- name: discard_failed
delete from evervec_failed_messages where tenant = $1 and message in list($2)
