"""Evervec beside its peers and beside the least that the same work could cost.

Everything that is compared runs in one process, in interleaved rounds, so that a
noisy machine is noisy for all; what counts are the ratios. Each module is one
question and says in its docstring what the others do and do not do.
"""
