"""Attached tables."""
