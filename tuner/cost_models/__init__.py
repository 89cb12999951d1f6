"""Cost models: what they learn from, how they are fitted, what they begin with."""
