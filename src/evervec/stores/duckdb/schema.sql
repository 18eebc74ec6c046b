-- Names have a prefix, because the file may belong to the application.
-- Rows are found by column scans, which DuckDB does fast. The only indexes are those that prevent
-- two transactions from inserting the same key.

create table evervec_meta (
    key varchar not null,
    value bigint not null
);

-- one counter for seq, record, job and point numbers: later rows have greater numbers
insert into evervec_meta (key, value)
values ('schema', 0), ('counter', 0), ('removals_purged', 0);

-- the connections of callers, and how many calls joined a transaction on each
create table evervec_callers (
    caller bigint not null,
    calls bigint not null
);

-- the stems of title and text, each between two spaces
alter table evervec_records add column words varchar;

-- how often a word occurs in a live record; words in the title count twice. Words are stored as
-- numbers, which are scanned many times as fast
create table evervec_words (
    record bigint not null,
    word ubigint not null,
    times integer not null
);
