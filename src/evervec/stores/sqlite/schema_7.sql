-- The seq of the add that filled a job's box: the record that comes out of it is no newer, however
-- often its job was asked for again since. Without one it is the job's own.
alter table evervec_jobs add column box_seq integer;
