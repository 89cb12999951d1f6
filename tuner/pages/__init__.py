"""Runs as pages that a browser shows by itself, without a network."""
