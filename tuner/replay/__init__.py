"""Recorded measurements in place of machines."""
