"""Contractions on a GPU: thread blocks, shared memory, register tiles."""
