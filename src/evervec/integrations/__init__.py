"""Imports from other systems. Each uses the public API of evervec, as an application would."""
