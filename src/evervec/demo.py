"""`make demo`: the way of a record in a few lines of output."""
