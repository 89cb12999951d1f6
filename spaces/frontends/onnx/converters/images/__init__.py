"""Converters of operators on images: sizes, windows, regions, channels."""
