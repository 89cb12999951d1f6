"""Chosen elements of what a program computes."""
