"""Sums of products by instructions that add up the products of a group at once."""
