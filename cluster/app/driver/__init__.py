"""The steps of `tuner tune` before and after a search."""
