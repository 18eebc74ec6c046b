"""Imports from other systems. Each uses the facade, and internals where a takeover needs
them."""
