"""Passes over programs for CUDA devices."""
