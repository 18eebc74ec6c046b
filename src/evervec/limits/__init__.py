"""Limits that all workers of a store keep together: pauses, budgets, caps."""
