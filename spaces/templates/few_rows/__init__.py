"""Products with few rows: a large operand is read once, by loads, as fast as memory gives it."""
