"""Checks that the index holds exactly the latest version of every record, once.

`verify` walks records and points side by side, slice by slice; `diff` finds what is wrong in a
slice. The folder reads store, index and attached tables; it writes only with repair, by enqueuing
records again and removing points that belong to no record. `evervec.worker` then does the enqueued
work.
"""
