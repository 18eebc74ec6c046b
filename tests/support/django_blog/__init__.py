"""A Django app whose models have every shape of key and table that can be searched."""
