"""Whether an imported model computes what its source does."""
