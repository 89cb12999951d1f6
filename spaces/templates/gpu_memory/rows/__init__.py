"""Kernels that go through a program in rows, columns, or element by element."""
