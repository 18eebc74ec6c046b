-- Records: changes, lists, and what searches read.

-- name: unindex_text
insert into evervec_text (evervec_text, rowid, scope, title, text)
select 'delete', r.record, ?, coalesce(r.title, ''), r.text
from evervec_records as r
where r.record in (select value from json_each(?)) and r.state = 'live'

-- name: mark
-- every change takes a number
select value from evervec_meta where key = 'counter'

-- name: text_totals
-- FTS5's totals: rows, then words by column
select block from evervec_text_data where id = 1

-- name: text_sizes
select json_group_array(hex(sz)) from (
    select s.sz
    from evervec_text as t
    cross join evervec_text_docsize as s on s.id = t.rowid
    where evervec_text match ?
    order by t.rowid desc limit ?
)

-- name: count_text
select count(*) from evervec_text where evervec_text match ?

-- name: score_text
-- all rows in one value: each step to a row would release and take the interpreter lock
with scored as materialized (
    select t.rowid as record, -bm25(evervec_text, 0.0, 2.0, 1.0) as score, s.sz as size
    from evervec_text as t
    cross join evervec_text_docsize as s on s.id = t.rowid
    where evervec_text match ?
)
select json_group_array(json_array(record, score, hex(size))) from scored

-- name: score_text_most
-- `most` is the limit of the score as the number of occurrences grows
with scored as materialized (
    select t.rowid as record, -bm25(evervec_text, 0.0, 2.0, 1.0) as score, s.sz as size,
        -bm25(evervec_text, 0.0, 1e18, 1e18) as most
    from evervec_text as t
    cross join evervec_text_docsize as s on s.id = t.rowid
    where evervec_text match ?
)
select json_group_array(json_array(record, score, hex(size), most)) from scored

-- name: score_text_among
with scored as materialized (
    select t.rowid as record, -bm25(evervec_text, 0.0, 2.0, 1.0) as score, s.sz as size
    from evervec_text as t
    cross join evervec_text_docsize as s on s.id = t.rowid
    where evervec_text match ? and +t.rowid in (select value from json_each(?))
)
select json_group_array(json_array(record, score, hex(size))) from scored

-- name: passing
select r.record from evervec_records as r
where r.record in (select value from json_each(?1)) and (?2 is null or r.kind = ?2)

-- name: candidates
-- joined with the list: `in` would sort it first, and searches are hot
select json_group_array(json_array(r.record, r.kind, r.weight, r.updated_at))
from json_each(?) as wanted
cross join evervec_records as r on r.record = wanted.value
where +r.tenant = ? and r.state = 'live'

-- name: found_short
-- `found`, without records whose text, metadata and data are long
select json_group_array(json_array(
    r.record, r.kind, r.id, r.title, r.text, r.metadata, r.seq, r.data
))
from json_each(?1) as wanted
cross join evervec_records as r on r.record = wanted.value
where r.state = 'live'
    and length(r.text) + length(r.metadata) + coalesce(length(r.data), 0) <= ?2

-- name: ledgers
-- joined with the list: `in` would sort it first, and searches are hot
select r.record, l.chunks
from json_each(?) as wanted
cross join evervec_records as r on r.record = wanted.value
cross join evervec_ledger as l
    on l.record = r.record and l.version in (select value from json_each(?)) and l.seq >= r.seq

-- name: words_state
select value, (select value from evervec_meta where key = 'words')
from evervec_meta where key = 'counter'

-- name: words_changed
update evervec_meta set value = value + 1 where key = 'words'

-- name: word_parts
select part, last, data from evervec_word_parts where tenant = ?1 order by part

-- name: last_words
select coalesce(max(part), 0), coalesce(max(last), 0) from evervec_word_parts where tenant = ?1

-- name: last_words_row
select coalesce(max(number), 0) from evervec_words

-- name: add_words
insert into evervec_words (tenant, word, part, data) values (?1, ?2, ?3, ?4)

-- name: add_word_part
insert into evervec_word_parts (tenant, part, last, first_row, last_row, data)
values (?1, ?2, ?3, ?4, ?5, ?6)

-- name: drop_words
delete from evervec_words
where number > (select first_row from evervec_word_parts where tenant = ?1 and part = ?2)
    and number <= (select last_row from evervec_word_parts where tenant = ?1 and part = ?2)

-- name: drop_word_part
delete from evervec_word_parts where tenant = ?1 and part = ?2

-- name: words
select word, part, data from evervec_words
where tenant = ?1 and word in (select value from json_each(?2))

-- name: large_tenants
-- the tenants with at least so many records
select tenant from evervec_usage group by tenant having sum(records) >= ?1

-- name: note_rewritten
-- A change has advanced the counter: the mark is above that of all snapshots that do not see it,
-- and not above that of any that does. A part that is dropped changes the number of the last write
-- of parts instead.
insert into evervec_rewritten (tenant, record, mark)
select ?1, value, (select value from evervec_meta where key = 'counter') from json_each(?2)
where true
on conflict do update set mark = excluded.mark

-- name: rewritten
select record from evervec_rewritten where tenant = ?1 and mark > ?2 and record <= ?3

-- name: rewritten_texts
-- records of parts that were changed since; those that are not live without their text
select n.record, iif(r.state = 'live', r.title, null), iif(r.state = 'live', r.text, null)
from evervec_rewritten as n
left join evervec_records as r on r.record = n.record
where n.tenant = ?1 and n.record <= ?2

-- name: drop_notes
delete from evervec_rewritten
where tenant = ?1 and record in (select value from json_each(?2)) and mark <= ?3

-- name: count_idle_notes
select count(*) from evervec_rewritten as n
where not exists (select 1 from evervec_word_parts as p where p.tenant = n.tenant)
    and not exists (select 1 from evervec_records as r where r.record = n.record)

-- name: drop_idle_notes
-- of records that were deleted and purged, in tenants without parts
delete from evervec_rewritten
where not exists (select 1 from evervec_word_parts as p where p.tenant = evervec_rewritten.tenant)
    and not exists (select 1 from evervec_records as r where r.record = evervec_rewritten.record)

-- name: count_tail
select count(*) from (
    select 1 from evervec_text where evervec_text match ?1 and rowid > ?2 limit ?3)

-- name: tail
-- the live records of a tenant above a number, in order
select r.record, r.title, r.text
from evervec_text as t
cross join evervec_records as r on r.record = t.rowid
where evervec_text match ?1 and t.rowid > ?2
order by t.rowid

-- name: texts
select r.record, r.title, r.text
from json_each(?1) as wanted
cross join evervec_records as r on r.record = wanted.value
where r.state = 'live'
