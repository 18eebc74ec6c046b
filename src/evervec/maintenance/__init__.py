"""What is done from time to time."""
