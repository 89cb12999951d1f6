"""Errors that kernels may have: of expressions, by fast math, by TF32; tensors that hold them."""
