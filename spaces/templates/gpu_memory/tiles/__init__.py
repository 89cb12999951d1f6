"""Kernels that transpose tiles in shared memory."""
