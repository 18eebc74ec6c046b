"""`python -m evervec` is the command line."""

from evervec.cli import main

main()
