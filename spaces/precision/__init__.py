"""A model's products in other types than it has them in."""
