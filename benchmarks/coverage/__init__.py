"""Which networks can be tuned, and whether what is compiled is right; see `__main__`."""
