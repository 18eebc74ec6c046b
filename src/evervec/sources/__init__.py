"""Tables that the application owns, kept in step without its help."""
