"""Attached tables: rows of an application's own tables as records.

`base` is the port, `following` the part that both engines share, and `postgres` and `sqlite` the engines, whose
triggers log changes; `tables` is what workers and searches use. It may touch the store's database, and nothing
else. Changes become jobs, which go on in `evervec.worker`.
"""
