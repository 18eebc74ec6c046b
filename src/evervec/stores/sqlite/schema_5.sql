-- Tenants whose jobs are not claimed; the empty name stands for all.
create table evervec_pauses (
    tenant text primary key
) without rowid;

insert into evervec_pauses (tenant)
select '' from evervec_meta where key = 'paused' and value <> 0;

delete from evervec_meta where key = 'paused';
