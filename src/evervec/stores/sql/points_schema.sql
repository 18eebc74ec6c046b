-- The index in a store's own file, in the neutral form of `schema.sql`.

-- one row per chunk; a row without a vector is a tombstone
create table evervec_points (
    point bigint primary key,
    version bigint not null,
    tenant text not null,
    record bigint not null,
    seq bigint not null,
    position bigint not null,
    hash bytea not null,
    vector bytea,
    unique (record, version, hash)
);

create index evervec_points_feed on evervec_points (version, tenant);

-- removed points, for processes that hold points in memory
create table evervec_removed (
    removal bigint primary key,
    version bigint not null,
    tenant text not null,
    point bigint not null,
    removed_at double not null
);

create index evervec_removed_feed on evervec_removed (version, tenant);

-- sketches of the vectors of large collections, in parts (see `indexes.sketch_parts`)
create table evervec_sketches (
    version bigint not null,
    tenant text not null,
    first bigint not null,          -- the part has the points above this number
    last bigint not null,           -- up to this number
    mark bigint not null,           -- that existed at this mark
    data bytea not null,
    unique (version, tenant, last)
);
