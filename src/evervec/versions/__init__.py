"""Backfill and change of model."""
