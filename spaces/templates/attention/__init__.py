"""The template for attention on tensor cores."""
