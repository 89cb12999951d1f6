"""Symbolic dimensions: the shapes that programs are tuned for, and the kernels that serve them."""
