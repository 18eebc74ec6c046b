"""Embedders: what turns texts into vectors. `base` is the port."""
