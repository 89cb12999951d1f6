"""Templates for attention."""
