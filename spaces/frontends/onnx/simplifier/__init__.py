"""Graphs made simpler before they are imported, with the same values."""
