"""What stores over SQL share: the decisions, and the calls that differ by their queries alone.

An engine brings connections, queries under the same names, and whatever it does in a way
of its own.
"""
