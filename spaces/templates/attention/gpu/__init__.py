"""Attention on tensor cores."""
