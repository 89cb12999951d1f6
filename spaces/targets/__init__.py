"""Targets: what a machine is, and what kernels may assume of it."""
