"""Programs with symbolic dimensions: one search for all their shapes, a few kernels, a tree."""
