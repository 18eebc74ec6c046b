-- The jobs of a claim are written once and seldom read: to compress them costs more than it saves.
alter table evervec.claims alter column jobs set storage external;
