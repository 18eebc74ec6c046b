-- The caller's trace (W3C traceparent), which the worker goes on with.
alter table evervec.jobs add column trace text;
