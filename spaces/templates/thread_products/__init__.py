"""Products whose threads multiply by themselves, a number at a time."""
