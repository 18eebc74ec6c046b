-- Keys of the service, by the hash of their secret part.
create table evervec_keys (
    id text primary key,
    hash text not null,
    tenant text not null,
    agent text not null,
    role text not null,             -- admin, writer, reader
    created_at real not null,
    expires_at real,
    last_used_at real,
    revoked_at real
) without rowid;

-- Requests by the names that their callers gave them, so that one sent twice is done once.
create table evervec_asked (
    tenant text not null,
    name text not null,
    fingerprint text not null,
    answer text,
    asked_at real not null,
    primary key (tenant, name)
) without rowid;

create index evervec_asked_old on evervec_asked (asked_at);
