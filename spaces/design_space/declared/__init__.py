"""Spaces that users declare, see `tuner.space`."""
