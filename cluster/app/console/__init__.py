"""The command line's terminal, flags and checks."""
