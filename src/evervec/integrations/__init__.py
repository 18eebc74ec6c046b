"""Ways in from other systems."""
