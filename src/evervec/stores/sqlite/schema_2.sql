-- What processes share: notes on providers, what their calls cost, vectors to use again.

create table evervec_notes (
    name text primary key,
    value text not null,
    revision integer not null
) without rowid;

create table evervec_spend (
    day text not null,
    tenant text not null,
    kind text not null,
    model text not null,
    calls real not null,
    tokens integer not null,
    money real not null,
    primary key (day, tenant, kind, model)
) without rowid;

-- numbered in order of their coming: the oldest go first
create table evervec_cache (
    number integer primary key,
    model text not null,
    hash text not null,
    vector blob not null,
    unique (model, hash)
);

-- the counter when a kind's way to cut its texts last changed
alter table evervec_versions add column cut_since integer not null default 0;

-- tables of the application that are kept in step, and the keys that their triggers log
create table evervec_attached (
    kind text primary key,
    definition text not null,
    position text                   -- the key up to which old rows are enqueued; null: all
) without rowid;

create table evervec_changes (
    number integer primary key,
    kind text not null,
    tenant text,
    id text
);

-- the workers that live, each by its last word
create table evervec_workers (
    worker text primary key,
    version text not null,
    started_at real not null,
    seen_at real not null,
    held integer not null,
    done integer not null
) without rowid;
