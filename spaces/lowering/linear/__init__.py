"""Integers that stand for numbers, (integer - zero) * scale: their programs, and sums of them."""
