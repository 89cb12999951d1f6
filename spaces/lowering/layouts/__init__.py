"""Which layouts tensors have: chosen for a graph, written into it."""
