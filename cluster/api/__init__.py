"""The door for programs in Python: plain keywords in, a request as the command makes it out."""
