"""Operators on images and on windows of tensors."""
