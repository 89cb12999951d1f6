"""Attention as one tensor program: found in a graph, described, and written."""
