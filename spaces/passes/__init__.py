"""Passes over scheduled TIR, and the pipelines they form."""
