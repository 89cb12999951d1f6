"""The interface for programs in Python: plain keywords become a request like the command's."""
