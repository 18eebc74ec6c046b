-- The workers that live, each by its last word.

create table evervec_workers (
    worker text primary key,
    version text not null,
    started_at real not null,
    seen_at real not null,
    held integer not null,
    done integer not null
) without rowid;
