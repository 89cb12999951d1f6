"""Products of bfloat16 by the instructions for them, and the tensors that these read."""
