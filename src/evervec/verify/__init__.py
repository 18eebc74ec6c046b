"""Whether the index holds exactly the latest version of every record, once.

`verify` walks through records and points side by side, slice by slice; `diff` finds what is wrong with a slice.
It reads store and index; only with repair does it write, by enqueuing records again and removing points that
belong to nothing. The repair itself is done by `evervec.worker`.
"""
