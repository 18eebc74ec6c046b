"""What tests of several folders share: `from support.<module> import ...`."""
