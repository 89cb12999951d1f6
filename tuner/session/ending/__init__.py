"""The end of a session: when more trials are not worth their time, and who is timed again."""
