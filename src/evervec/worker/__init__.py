"""Claim, read, chunk, embed, write."""
