"""NVIDIA's devices: their numbers, from the driver or from a table, and their state."""
