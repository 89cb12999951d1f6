"""Tensor intrinsics."""
