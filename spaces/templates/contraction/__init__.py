"""Contractions on a CPU: packed panels, register tiles, blocked loops."""
