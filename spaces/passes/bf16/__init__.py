"""Arithmetic of bfloat16, and the tensors that its products read."""
