"""Features of a program for a cost model."""
