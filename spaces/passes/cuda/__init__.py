"""Passes of ours for CUDA devices."""
