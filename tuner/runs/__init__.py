"""Runs: their folders, their locks, and where they live."""
