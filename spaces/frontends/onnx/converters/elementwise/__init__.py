"""Operators on single elements, types, quantisation."""
