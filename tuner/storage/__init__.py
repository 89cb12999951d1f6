"""Stores of records."""
