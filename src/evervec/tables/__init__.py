"""Attached tables: rows of an application's own tables as records.

`base` says what an attachment is, `attached` and `source` have what the engines share, and
`postgres` and `sqlite` are the engines, whose triggers log changes; workers and searches use
`tables`. The folder may touch only the store's database. Changes become jobs, which continue in
`evervec.worker`.
"""
