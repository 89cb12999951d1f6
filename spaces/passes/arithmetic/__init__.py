"""Passes that compute the same numbers by cheaper arithmetic."""
