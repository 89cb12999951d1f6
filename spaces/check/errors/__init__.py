"""Errors that kernels may have: of expressions, by fast math, by TF32; the tensors that hold them."""
