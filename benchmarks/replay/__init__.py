"""Recorded spaces, and search policies compared on them without a device."""
