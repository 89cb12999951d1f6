"""The application: what a user calls, from the command line and from Python."""
