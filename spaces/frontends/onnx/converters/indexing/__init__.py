"""Operators that choose or move elements."""
