"""Statistics: norms, reductions, softmax, products, and what is done in training alone."""
