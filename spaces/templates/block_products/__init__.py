"""Products of rows of bytes with packed weights, both in blocks with scales of their own."""
