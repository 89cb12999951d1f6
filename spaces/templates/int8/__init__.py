"""Products of int8 matrices by dot-product instructions."""
