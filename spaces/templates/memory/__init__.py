"""Programs that move memory: element by element, reductions, norms."""
