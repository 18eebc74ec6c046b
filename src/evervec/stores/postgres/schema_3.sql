-- Tenants whose jobs are not claimed; the empty name stands for all.
create table evervec.pauses (
    tenant text collate "C" primary key
);

insert into evervec.pauses (tenant)
select '' from evervec.meta where key = 'paused' and value <> 0;

delete from evervec.meta where key = 'paused';

-- The jobs of a claim are written once and seldom read: to compress them costs more than it saves.
alter table evervec.claims alter column jobs set storage external;
