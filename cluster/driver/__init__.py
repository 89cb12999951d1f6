"""What `tuner tune` does around a search."""
