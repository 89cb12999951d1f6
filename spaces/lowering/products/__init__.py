"""Products of matrices in a graph, in the form that moves the fewest bytes."""
